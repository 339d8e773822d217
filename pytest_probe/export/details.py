"""accuracy_checking_details_*.csv, a row an output: the columns of msprobe, of its checker for MindSpore and of
PaddleAPEX; and rows read back, from such a file or from a folder of ours. And accuracy_checking_result_*.csv, by call.

msprobe's own api_precision_compare reads the details. UTF-8 with a byte order mark. msprobe has floats of 14 decimals,
or as many as its file says, and a space in cells that are not used.
"""

from __future__ import annotations

import ast
import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from fnmatch import fnmatchcase
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.export.table import CallStatuses, Column, Table, status_of
from pytest_probe.model.result import OutputResult, Plain, Result, number
from pytest_probe.model.verdict import Metric
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.reports.result_set import RunFolder
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.standards.tools import TOOLS, rule_of
from pytest_probe.standards.tools.release import Release
from pytest_probe.system.files import open_regular

NAME, DEVICE, SHAPE, _STATUS, MESSAGE = "API Name", "DEVICE Dtype", "Shape", "Status", "Message"
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


@cache
def _measured(rule: str) -> list[str]:
    """The fields of Measures that have a value in the row of an output whose rule this is."""
    blank = {column for columns in OF_RULE.values() for column in columns} - set(OF_RULE.get(rule, ()))
    return [field for column, field in MEASURED.items() if column not in blank]


class Detail(Struct, frozen=True):
    """The row of an output. bench and device are dtypes; metrics are numbers or texts, by the names of Measures."""

    name: str
    status: str
    message: str
    bench: str | None = None
    device: str | None = None
    shape: str | None = None
    metrics: Mapping[str, object] = {}

    def metric(self, name: str) -> object:
        """As files have it: the cosine itself is 1 minus cosine_distance."""
        value = self.metrics.get(name)
        return 1 - value if name == "cosine_distance" and isinstance(value, float) else value


def _metric(header: str, name: str) -> Column:
    return Column(header, lambda row: row.metric(name))


_NAME, _BENCH = Column(NAME, lambda row: row.name), Column("Bench Dtype", lambda row: row.bench)
_SHAPE = Column(SHAPE, lambda row: row.shape)
_END = (Column(_STATUS, lambda row: row.status), Column(MESSAGE, lambda row: row.message))
DETAILS = (
    *(_NAME, _BENCH, Column(DEVICE, lambda row: row.device), _SHAPE),
    *map(_metric, MEASURED, MEASURED.values()),
    *_END,
)
MINDSPORE_DETAILS = (
    *(_NAME, _BENCH, Column("Tested Dtype", lambda row: row.device), _SHAPE, _metric("Cosine", "cosine_distance")),
    *(_metric("MaxAbsErr", "max_abs_error"), _metric("MaxRelativeErr", "max_rel_error"), *_END),
)
PADDLEAPEX_DETAILS = tuple(column for column in DETAILS if column.header not in OF_RULE["ulp"])
_GIVE = "give a folder of --probe-out, or an accuracy_checking_details file"
_FIELDS = frozenset(Measures.__struct_fields__)


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
        found = _of_folder(path, without_ulp) if path.is_dir() else _of_file(path, without_ulp)
        return {row.key: row for row in found}
    except (OSError, UnicodeDecodeError, ResultsError, csv.Error) as error:
        raise SettingsError("compare", str(path), f"it cannot be read: {error}; {_GIVE}") from error


def early_end(path: Path) -> str:
    """What is to be said of a run that ended early, "" of a whole one and of a file. Raises SettingsError."""
    if not (path / RESULTS).exists():
        return ""
    words = f"it cannot be read: {{error}}; {_GIVE}"
    return RunFolder.read("compare", path, words, words).early_end()


def _of_folder(folder: Path, without_ulp: bool) -> Iterator[Row]:
    results = folder / RESULTS
    if not results.exists():
        files = sorted(folder.glob("accuracy_checking_details*.csv"))
        if len(files) != 1:
            held = f"it holds {len(files)} details files and no {RESULTS}"
            has_outputs = any(next(folder.glob(name), None) for name in ("output", "*/output"))
            wanted = "its outputs are compared with --direct" if has_outputs else _GIVE
            raise SettingsError("compare", str(folder), f"{held}; {wanted}")
        yield from _of_file(files[0], without_ulp)
        return
    found = list(read_results(results))
    calls = [result for result in found if result.api]
    several = len({result.portable_id.label for result in found}) > 1
    runs = Counter(result.portable_id.in_any_dtype for result in calls)
    for result in calls:
        named = result.portable_id
        # What ran in one dtype: the other side may have run in another one.
        if runs[named.in_any_dtype] == 1:
            named = named.in_any_dtype
        name, entry, api = str(named) if several else named.name, named.entry, result.api
        for index, output in enumerate(result.own_outputs):
            said = output.dtype, output.verdict, output.reason
            yield Row(f"{name}.output.{index}", entry, api, *said, measures_of(output.measures), output.standard)
        if not result.outputs:
            yield Row(f"{name}.output.0", entry, api, "", status_of(result.verdict), result.reason, Measures(0))


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
                held = f"a row has not the columns of the header ({count} cells): the file is cut"
                raise SettingsError("compare", str(path), f"line {reader.line_num}: {held}; {_GIVE}")
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
        field: number(text) for column, field in MEASURED.items() if (text := (cells.get(column) or "").strip())
    }
    if "cosine_distance" in values:
        values["cosine_distance"] = 1 - values["cosine_distance"]
    try:
        count = math.prod(map(int, ast.literal_eval((cells.get(SHAPE) or "").strip() or "()")))
    except (ValueError, SyntaxError, TypeError):
        count = 1
    return Measures(count, **values)


def check_same_dump(option: str, device: Set[str], benchmark: Set[str], what: str) -> int:
    """How many names are on both sides. what: of what they are names. Raises SettingsError where the two have not half
    of their names in common."""
    common, most = len(device & benchmark), max(len(device), len(benchmark))
    if 2 * common < most or not common:
        found = f"{common:,} of {most:,} {what} are on both sides"
        raise SettingsError(option, found, "give two runs of the same dump")
    return common


# msprobe's.
DECIMALS = 14
# By metric: what the tool for MindSpore says where it is beyond its limit, and where it has no value.
_MESSAGES = {
    "cosine": ("cosine similarity is less than threshold: {} ", "cosine similarity"),
    "max_abs_error": ("max absolute difference is greater than threshold: {} ", "max absolute difference"),
}


class Layout(Struct, frozen=True):
    """What msprobe's two files hold: of which APIs, by patterns; call is the header of the calls' names."""

    details: Table = Table(DETAILS)
    call: str = "API name"
    apis: tuple[str, ...] = ("*",)

    def has(self, result: Result) -> bool:
        return any(fnmatchcase(result.api, glob) for glob in self.apis)

    def rows(self, result: Result) -> Iterator[Detail]:
        """A row for each output."""
        for index, output in enumerate(result.own_outputs):
            yield self.detail(f"{result.portable_id.entry}.output.{index}", result, output)

    def count(self, result: Result, calls: CallStatuses) -> None:
        """Add what the other file says of a result."""
        named, status = result.portable_id, status_of(result.accuracy)
        calls.add(named.call, named.direction, status)
        if message := self.message(result, calls.messages.get(named.call, "")):
            calls.messages[named.call] = message

    def detail(self, name: str, result: Result, output: OutputResult) -> Detail:
        """Columns of rules that do not judge this API are left blank, and the reference's dtype is wide for floats."""
        dtype = output.dtype
        is_complex, floating = dtype.startswith("complex"), "float" in dtype or "complex" in dtype
        rule = rule_of(result.standard, result.api, dtype) if floating else "binary"
        found = ((field, output.measures.get(field)) for field in _measured(rule))
        metrics = {field: number(value) if isinstance(value, str) else value for field, value in found}
        bench = "complex128" if is_complex else "float64" if floating else dtype
        return Detail(
            name, output.verdict, output.reason, f"torch.{bench}", f"torch.{dtype}", str(output.shape), metrics
        )

    def message(self, result: Result, before: str) -> str:
        """What is said of a call, "" for nothing. before: what it says of the other direction."""
        return result.reason if status_of(result.accuracy) == "SKIP" else before


class MindSporeLayout(Layout, frozen=True, kw_only=True):
    """What the two files of msprobe's checker for MindSpore hold: its columns, dtypes and messages."""

    release: Release
    details: Table = Table(MINDSPORE_DETAILS, blank="", number=repr)
    call: str = "API Name"

    def detail(self, name: str, result: Result, output: OutputResult) -> Detail:
        dtype = frameworks.signatures("mindspore").written(output.dtype)[2]
        metrics = {field: number(value) for field, value in output.measures.items()}
        return Detail(name, status_of(output.verdict), self._message(output), dtype, dtype, str(output.shape), metrics)

    def message(self, result: Result, before: str) -> str:
        return before + ("".join(map(self._message, result.own_outputs)) if result.outputs else result.reason)

    def _message(self, output: OutputResult) -> str:
        said = ""
        for check in self.release.status.checks:
            beyond, metric = _MESSAGES[check.metric]
            value = output.measures.get("cosine_distance" if check.metric == "cosine" else check.metric)
            if value is None:
                said += f"two inputs are not valid for computing {metric}, skip comparing "
            elif not check.holds(1 - number(value) if check.metric == "cosine" else number(value)):
                said += beyond.format(check.limit)
        return said


def layout_of(standard: str, decimals: int = DECIMALS) -> Layout:
    """The layout of a run that was judged by this standard. decimals are those of numbers in msprobe's columns."""
    tool = TOOLS.get(standard)
    if tool is not None and tool.release.columns.layout == "mindspore":
        release = tool.release
        return MindSporeLayout(release=release, apis=tuple(" ".join(release.columns.apis).split()))
    return Layout(Table(DETAILS, number=f"{{:.{decimals}f}}".format))
