"""Rows of a run, one an output: from a folder of ours, or from a details file in msprobe's columns, which are here."""

from __future__ import annotations

import ast
import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import Plain, PortableId, Result, number
from pytest_probe.model.verdict import PASS_SELF, Metric
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.reports.result_set import RunFolder
from pytest_probe.reports.results_file import RESULTS, read_results, refused
from pytest_probe.system.files import open_regular

BLANK = " "
# What a cell says of a verdict. An API's row has two; of several outputs, and of several items, the worst counts: SKIP
# only where all skip.
STATUSES = ("SKIP", "pass", PASS_SELF, "warning", "error")
NAME, _BENCH, DEVICE, SHAPE, _STATUS, MESSAGE = "API Name", "Bench Dtype", "DEVICE Dtype", "Shape", "Status", "Message"
COSINE = "余弦相似度"
# Column: field of numerics.measures.Measures. The cosine itself is 1 minus cosine_distance.
MEASURED: Mapping[str, str] = {
    COSINE: "cosine_distance",
    "最大绝对误差": "max_abs_error",
    "双百指标": "hundredth_ratio",
    "双千指标": "thousandth_ratio",
    "双万指标": "ten_thousandth_ratio",
    "二进制一致错误率": "binary_mismatch_ratio",
    "误差均衡性": "error_balance",
    "均方根误差": "rmse",
    "小值域错误占比": "small_value_error_ratio",
    "相对误差最大值": "max_rel_error",
    "相对误差平均值": "mean_rel_error",
    "inf/nan错误率": "inf_nan_error_ratio",
    "相对误差错误率": "rel_error_ratio",
    "绝对误差错误率": "abs_error_ratio",
    "ULP误差最大值": "ulp_max",
    "ULP误差平均值": "ulp_mean",
    "ULP误差大于阈值占比": "ulp_over_ratio",
}
# Columns that msprobe fills where its tables choose the rule, and leaves blank elsewhere: its comparison goes by that.
OF_RULE: Mapping[str, tuple[str, ...]] = {
    "absolute_threshold": ("inf/nan错误率", "相对误差错误率", "绝对误差错误率"),
    "accumulative": ("inf/nan错误率", "相对误差错误率", "绝对误差错误率"),
    "ulp": ("ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比"),
    "binary": ("二进制一致错误率",),
}
DETAILS = (NAME, _BENCH, DEVICE, SHAPE, *MEASURED, _STATUS, MESSAGE)
RESULT = ("API name", "Forward Test Success", "Backward Test Success", MESSAGE)

# api_precision_compare_details: of each rule, the metric (or ratio) and the cells that it fills.
RATIOS: Mapping[str, tuple[str, str]] = {
    "small_value_error_ratio": ("小值域错误比值", "小值域判定结果"),
    "rmse": ("均方根误差比值", "均方根误差判定结果"),
    "max_rel_error": ("相对误差最大值比值", "相对误差最大值判定结果"),
    "mean_rel_error": ("相对误差平均值比值", "相对误差平均值判定结果"),
    "error_balance": ("误差均衡性比值", "误差均衡性判定结果"),
}
ABSOLUTE: Mapping[str, tuple[str, str]] = {
    "inf_nan_error_ratio": ("inf/nan错误率", "inf/nan判定结果"),
    "rel_error_ratio": ("相对误差错误率", "相对误差判定结果"),
    "abs_error_ratio": ("绝对误差错误率", "绝对误差判定结果"),
}
BINARY = ("二进制一致错误率", "二进制一致错误率判定结果")
ULP = ("ULP误差平均值", "ULP误差大于阈值占比", "ULP误差大于阈值占比比值", "ULP误差判定结果")
THOUSANDTH = ("双千指标", "双千指标判定结果")
OUTCOME, ALGORITHM = "比对结果", "比对算法"
ALGORITHMS: Mapping[str, str] = {
    "benchmark": "标杆比对法",
    "binary": "二进制一致法",
    "absolute_threshold": "绝对阈值法",
    "ulp": "ULP误差比对法",
    "thousandth": "双千指标法",
    "accumulative": "累积误差比对法",
}
COMPARE_DETAILS = (
    NAME,
    *(cell for pair in RATIOS.values() for cell in pair),
    *(cell for pair in ABSOLUTE.values() for cell in pair),
    *BINARY,
    *ULP,
    *THOUSANDTH,
    OUTCOME,
    ALGORITHM,
    MESSAGE,
)
# PaddleAPEX has no columns of ULP and of one share, and the ratios of three.
SHARES: Mapping[str, str] = {
    "双百错误率比值(Device/Bench)": "hundredth_ratio",
    "双千错误率比值(Device/Bench)": "thousandth_ratio",
    "双万错误率比值(Device/Bench)": "ten_thousandth_ratio",
}
PADDLEAPEX_DETAILS = (
    *(name for name in COMPARE_DETAILS[:-3] if name not in (*ULP, *THOUSANDTH)),
    *SHARES,
    *COMPARE_DETAILS[-3:],
)
COMPARE_RESULT = (NAME, "Forward Test Success", "Backward Test Success", MESSAGE)
_GIVE = "give a folder of --probe-out, or an accuracy_checking_details file"
_FIELDS = frozenset(Measures.__struct_fields__)


def status_of(verdict: str) -> str:
    return "SKIP" if verdict == "skip" else verdict


def shape_text(shape: Sequence[int]) -> str:
    """As Python prints a tuple."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


class Row(Struct, frozen=True):
    """One output. key names it on both sides of a comparison ("Functional.linear.0.forward.output.0", behind the dump's
    label where a run of ours has several dumps, with a dtype where it ran in several); api is the one whose rule judges
    ("Functional.linear"); dtype is the device's, "" where there is no output to judge; judge is the standard of the
    output's own run, "" where a file does not say."""

    key: str
    entry: str
    api: str
    dtype: str
    status: str
    reason: str
    measures: Measures
    judge: str = ""

    @property
    def call(self) -> str:
        """The API call: "Functional.linear.0"."""
        return self.entry.rpartition(".")[0]

    @property
    def direction(self) -> str:
        return self.entry.rpartition(".")[2]


def read_rows(path: Path, *, without_ulp: bool = False) -> dict[str, Row]:
    """The rows of a run by key. without_ulp: may a file lack those columns? Raises SettingsError where the path holds
    none."""
    try:
        if path.is_dir():
            return _of_folder(path, without_ulp)
        return {row.key: row for row in _of_file(path, without_ulp)}
    except (OSError, UnicodeDecodeError, ResultsError, csv.Error) as error:
        raise SettingsError("compare", str(path), f"it cannot be read: {error}; {_GIVE}") from error


def early_end(path: Path) -> str:
    """What is to be said of a run that ended early, "" of a whole one and of a file. Raises SettingsError."""
    if not (path / RESULTS).exists():
        return ""
    words = f"it cannot be read: {{error}}; {_GIVE}"
    with refused("compare", path, words, words):
        return RunFolder.read("compare", path).early_end()


def _of_folder(folder: Path, without_ulp: bool) -> dict[str, Row]:
    results = folder / RESULTS
    if not results.exists():
        files = sorted(folder.glob("accuracy_checking_details*.csv"))
        if len(files) != 1:
            held = f"it holds {len(files)} details files and no {RESULTS}"
            has_outputs = any(next(folder.glob(name), None) for name in ("output", "*/output"))
            wanted = "its outputs are compared with --direct" if has_outputs else _GIVE
            raise SettingsError("compare", str(folder), f"{held}; {wanted}")
        return {row.key: row for row in _of_file(files[0], without_ulp)}
    found = list(read_results(results))
    calls = [result for result in found if result.api]
    several = len({result.portable_id.label for result in found}) > 1
    runs = Counter(result.portable_id.in_any_dtype for result in calls)
    return {row.key: row for result in calls for row in _of_result(result, several, runs)}


def _of_result(result: Result, several: bool, runs: Mapping[PortableId, int]) -> Iterator[Row]:
    """runs: in how many dtypes each entry ran; the other side may have run in another one."""
    named, api = result.portable_id, result.api
    if runs[named.in_any_dtype] == 1:
        named = named.in_any_dtype
    name = str(named) if several else named.name
    for index, output in enumerate(result.own_outputs):
        measures = measures_of(output.measures)
        key, judge = f"{name}.output.{index}", output.standard
        yield Row(key, named.entry, api, output.dtype, output.verdict, output.reason, measures, judge)
    if not result.outputs:
        yield Row(f"{name}.output.0", named.entry, api, "", status_of(result.verdict), result.reason, Measures(0))


def measures_of(found: Mapping[str, Plain | Metric]) -> Measures:
    """Measures as a result holds them."""
    known: dict[str, Any] = {name: number(value) if isinstance(value, str) else value for name, value in found.items()}
    return Measures(**{"count": 0, **{name: value for name, value in known.items() if name in _FIELDS}})


def _of_file(path: Path, without_ulp: bool) -> Iterator[Row]:
    with TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        wanted = [name for name in (NAME, DEVICE, *MEASURED) if not (without_ulp and name in OF_RULE["ulp"])]
        missing = [name for name in wanted if name not in (reader.fieldnames or ())]
        if missing:
            of_paddleapex = set(missing) <= set(OF_RULE["ulp"])
            advice = "PaddleAPEX's files need --standard=paddleapex" if of_paddleapex else _GIVE
            raise SettingsError("compare", str(path), f"it has no column {missing[0]}; {advice}")
        for cells in reader:
            count = len(cells) - list(cells.values()).count(None)
            if None in cells or count < len(reader.fieldnames or ()):
                held = (
                    f"line {reader.line_num}: a row has not the columns of the header ({count} cells): the file is cut"
                )
                raise SettingsError("compare", str(path), f"{held}; {_GIVE}")
            key = cells[NAME]
            dtype = (cells[DEVICE] or "").strip().removeprefix("torch.").removeprefix("paddle.")
            reason, status = (cells.get(name) or "" for name in (MESSAGE, _STATUS))
            entry = key.rpartition(".output.")[0] or key
            call = entry.rpartition(".")[0]
            # PaddleAPEX has "paddle.add*0".
            api = call.partition("*")[0] if "*" in call else call.rpartition(".")[0]
            yield Row(key, entry, api, dtype, status.strip(), reason.strip(), _of_cells(cells))


def _of_cells(cells: Mapping[str, str | None]) -> Measures:
    values: dict[str, Any] = {
        field: number((cells.get(column) or "").strip() or None) for column, field in MEASURED.items()
    }
    blank = {MEASURED[column] for column in MEASURED if not (cells.get(column) or "").strip()}
    if MEASURED[COSINE] not in blank:
        values[MEASURED[COSINE]] = 1 - values[MEASURED[COSINE]]
    return Measures(_count(cells.get(SHAPE)), **{name: value for name, value in values.items() if name not in blank})


def _count(shape: str | None) -> int:
    try:
        extents = ast.literal_eval((shape or "").strip() or "()")
        count = 1
        for extent in extents:
            count *= int(extent)
    except (ValueError, SyntaxError, TypeError):
        return 1
    return count
