"""Three-party judging: a device's results against a benchmark's, case by case or afterwards, into
api_precision_compare_*.csv, in the columns of msprobe or in those of PaddleAPEX's acc_multi_cmp.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.export.details import MESSAGE, NAME, Row, measures_of
from pytest_probe.export.table import CallStatuses, Column, Table, status_of
from pytest_probe.model.result import OutputResult, Result
from pytest_probe.model.verdict import Outcome, OutputVerdict, Verdict, conclusion
from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tables import classes_of
from pytest_probe.standards.tools import COMPARES, DEFAULT
from pytest_probe.standards.tools.release import RuleVerdict
from pytest_probe.standards.tools.table import BENCHMARK
from pytest_probe.standards.tools.tool import UNSUPPORTED, Decision

# Standards that judge by an output's distance from the reference; other ones of our own judge what has no one value.
_BY_VALUE = ("noise", "exact")
_NO_VALUE = frozenset(("random", "uninitialised"))
MISSING, NOTHING = "the benchmark's results do not have this case", "the benchmark has no outputs of this case"
_FOLDER_TELLS = "only a folder of --probe-out says whether they are what the API promises"


def is_paddleapex(standard: str) -> bool:
    return standard.startswith("paddleapex")


class ComparedRow(Struct, frozen=True):
    """One output on both sides, or on one only: then nothing was decided."""

    key: str
    device: Row | None
    benchmark: Row | None
    decision: Decision

    @property
    def row(self) -> Row:
        """The device's, else the benchmark's."""
        row = self.device or self.benchmark
        assert row is not None
        return row

    @property
    def call(self) -> str:
        """The API call, with the dump's label and the dtype that the key has."""
        label, _, rest = self.key.partition(self.row.entry)
        return f"{label}{self.row.call}{rest.partition('.output.')[0]}"

    @property
    def status(self) -> str:
        return status_of(self.decision.ruling.verdict)


def compare(device: Mapping[str, Row], benchmark: Mapping[str, Row], standard: str) -> list[ComparedRow]:
    """Every output of both runs, in the device's order, then the outputs that only the benchmark has."""
    sides = ((key, device.get(key), benchmark.get(key)) for key in dict.fromkeys((*device, *benchmark)))
    return [ComparedRow(key, mine, other, _decided(mine, other, standard)) for key, mine, other in sides]


def _decided(device: Row | None, benchmark: Row | None, standard: str) -> Decision:
    as_tool = standard == "paddleapex"
    if device is None or benchmark is None:
        where = "benchmark" if device is None else "device"
        return Decision("", RuleVerdict("skip", f"only in the {where}'s results"))
    if not device.dtype:
        return Decision("", RuleVerdict("skip", device.reason or "no output to compare"))
    if not benchmark.dtype and not as_tool:
        return Decision("", RuleVerdict("skip", f"the benchmark has no output: {benchmark.reason}"))
    ruling = None if as_tool and not device.judge else _alone(device)
    if ruling is not None:
        return Decision("", ruling)
    decision = COMPARES[standard](device.api, device.dtype, device.measures, benchmark.measures)
    share = device.measures.binary_mismatch_ratio
    if not is_paddleapex(standard) or decision.rule != "binary" or (share is not None and math.isfinite(share)):
        return decision
    # The tool ends at a row without the share of unequal elements: of Python numbers that differ, or of nothing.
    if as_tool:
        return Decision("", RuleVerdict("skip", "no share of unequal elements: the tool ends here"))
    return replace(decision, ruling=RuleVerdict("error" if device.status == "error" else "pass", device.reason))


def _alone(device: Row) -> RuleVerdict | None:
    """The device's own verdict on an output that has no one right value, for example of a random API: its distance from
    the reference says nothing, nor does a benchmark's. None where the two are to be compared."""
    if device.judge in _BY_VALUE:
        return None
    no_value = _NO_VALUE & classes_of(frameworks.signatures().canonical(device.api))
    if not device.judge:
        return RuleVerdict("skip", f"{min(no_value)} values; {_FOLDER_TELLS}") if no_value else None
    if device.judge in STANDARDS and not no_value:
        return None
    return RuleVerdict(cast(Outcome, device.status), device.reason)


def judge(verdict: Verdict, other: Result | None, api: str) -> Verdict:
    """The verdict, with the benchmark's result of the case taken into account. A tool's standard judges by all three
    sides. By one of our own standards, an output that passes but is an error compared with the benchmark becomes a
    warning."""
    if verdict.verdict == "skip":
        return verdict
    if other is None:
        return replace(verdict, notes=(*verdict.notes, MISSING))
    rows = {output.name: output for output in other.outputs}
    if not rows:
        return replace(verdict, notes=(*verdict.notes, f"{NOTHING}: {other.reason or other.verdict}"))
    outputs = tuple(_beside(output, rows.get(output.name), verdict.standard, api) for output in verdict.outputs)
    if outputs == verdict.outputs:
        return verdict
    outcome, reason = conclusion(outputs)
    return replace(verdict, verdict=outcome, reason=reason, outputs=outputs)


def _beside(output: OutputVerdict, other: OutputResult | None, standard: str, api: str) -> OutputVerdict:
    """Only numbers that have one right value are compared: where a class judges (signs of factors, random values,
    ties), the distance from the reference says nothing."""
    if other is None or not output.measures or not other.measures:
        return output
    if "random" in classes_of(frameworks.signatures().canonical(api)) or (
        standard not in COMPARES and output.standard != "noise"
    ):
        return output
    rule = standard if standard in COMPARES else DEFAULT
    if "justification" in output.metrics:
        # The project's own rule for the API stays, and so do its limits.
        rule = str(output.metrics["rule"])
        if rule not in COMPARES:
            return output
    device, benchmark = measures_of(output.measures), measures_of(other.measures)
    decision = COMPARES[rule](api, output.dtype, device, benchmark)
    ratios = {f"benchmark_{item.metric}": item.value for item in decision.compared}
    outcome = decision.ruling.verdict
    judged = replace(output, metrics={**output.metrics, **ratios})
    if outcome == "skip":
        return judged
    if standard in COMPARES:
        return replace(judged, verdict=outcome, reason=decision.ruling.reason)
    if outcome == "error" and output.verdict == "pass":
        return replace(judged, verdict="warning", reason=decision.ruling.reason)
    return judged


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _ratio(value: float | None) -> float | None:
    """The tools print NaN also where a NaN or inf is unlike the benchmark's."""
    return math.nan if value == math.inf else _number(value)


def _ratios(metric: str, header: str, verdict: str) -> Iterator[Column]:
    """The ratio of both sides' errors, and what it is."""

    def of(row: ComparedRow) -> tuple[float | None, str | None]:
        found = (each for each in row.decision.compared if each.metric == metric)
        return next(((_ratio(each.value), each.ruling.verdict) for each in found), (None, None))

    yield Column(header, lambda row: of(row)[0])
    yield Column(verdict, lambda row: of(row)[1])


def _of_rule(header: str, value: Callable[[ComparedRow], object], *rules: str) -> Column:
    """A cell that these rules fill."""
    return Column(header, lambda row: value(row) if row.decision.rule in rules else None)


def _metric(header: str, name: str, *rules: str) -> Column:
    """The device's own."""
    return _of_rule(header, lambda row: _number(getattr(row.row.measures, name)), *rules)


def _share(header: str, verdict: str, name: str) -> Iterator[Column]:
    """A share of elements that must be none."""
    rules = ("absolute_threshold", "accumulative")
    yield _metric(header, name, *rules)
    yield _of_rule(verdict, lambda row: "error" if getattr(row.row.measures, name) else "pass", *rules)


def _verdict(header: str, rule: str) -> Column:
    return _of_rule(header, lambda row: row.decision.ruling.verdict, rule)


def _shares_divided(header: str, name: str) -> Column:
    """The shares of elements that are not near, divided for information."""

    def value(row: ComparedRow) -> object:
        sides = [each.measures for each in (row.device, row.benchmark) if each is not None]
        device, benchmark = (getattr(measures, name) for measures in sides)
        if device is None or benchmark is None or not math.isfinite(device) or not math.isfinite(benchmark):
            return ""
        if abs(device - benchmark) < 1e-6:
            return "equal, delta<1e-6"
        return str((1 - device) / (1 - benchmark)) if benchmark != 1 else ""

    return _of_rule(header, value, BENCHMARK)


_ALGORITHMS: Mapping[str, str] = {
    "benchmark": "标杆比对法",
    "binary": "二进制一致法",
    "absolute_threshold": "绝对阈值法",
    "ulp": "ULP误差比对法",
    "thousandth": "双千指标法",
    "accumulative": "累积误差比对法",
}
_BOTH = (
    Column(NAME, lambda row: row.key),
    *_ratios("small_value_error_ratio", "小值域错误比值", "小值域判定结果"),
    *_ratios("rmse", "均方根误差比值", "均方根误差判定结果"),
    *_ratios("max_rel_error", "相对误差最大值比值", "相对误差最大值判定结果"),
    *_ratios("mean_rel_error", "相对误差平均值比值", "相对误差平均值判定结果"),
    *_ratios("error_balance", "误差均衡性比值", "误差均衡性判定结果"),
    *_share("inf/nan错误率", "inf/nan判定结果", "inf_nan_error_ratio"),
    *_share("相对误差错误率", "相对误差判定结果", "rel_error_ratio"),
    *_share("绝对误差错误率", "绝对误差判定结果", "abs_error_ratio"),
    _metric("二进制一致错误率", "binary_mismatch_ratio", "binary"),
    _verdict("二进制一致错误率判定结果", "binary"),
)
_OUTCOME = "比对结果"
_END = (
    Column("比对算法", lambda row: _ALGORITHMS.get(row.decision.rule)),
    Column(MESSAGE, lambda row: row.decision.ruling.reason),
)
MSPROBE = Table(
    (
        *_BOTH,
        _metric("ULP误差平均值", "ulp_mean", "ulp"),
        _metric("ULP误差大于阈值占比", "ulp_over_ratio", "ulp"),
        _of_rule("ULP误差大于阈值占比比值", lambda row: _ratio(row.decision.over_ratio), "ulp"),
        _verdict("ULP误差判定结果", "ulp"),
        _metric("双千指标", "thousandth_ratio", "thousandth"),
        _verdict("双千指标判定结果", "thousandth"),
        Column(_OUTCOME, lambda row: row.status),
        *_END,
    )
)
PADDLEAPEX = Table(
    (
        *_BOTH,
        _shares_divided("双百错误率比值(Device/Bench)", "hundredth_ratio"),
        _shares_divided("双千错误率比值(Device/Bench)", "thousandth_ratio"),
        _shares_divided("双万错误率比值(Device/Bench)", "ten_thousandth_ratio"),
        Column(_OUTCOME, lambda row: None if row.decision.ruling == UNSUPPORTED else row.status),
        *_END,
    )
)


def compared_files(
    stamp: str, found: Sequence[ComparedRow], standard: str = DEFAULT
) -> Mapping[str, Iterable[Sequence[str]]]:
    """The lines of api_precision_compare_details and _result by name."""
    table, calls = PADDLEAPEX if is_paddleapex(standard) else MSPROBE, CallStatuses()
    for item in found:
        calls.add(item.call, item.row.direction, item.status)
        calls.messages.setdefault(item.call, "")
        if item.status == "SKIP":
            calls.messages[item.call] = item.decision.ruling.reason
    for call, item in {item.call: item for item in found}.items() if standard == "paddleapex" else ():
        if item.decision.ruling == UNSUPPORTED:
            calls.by_call[call] = {"forward": "skip", "backward": "skip"}
            calls.messages[call] = UNSUPPORTED.reason
    return {
        f"api_precision_compare_result_{stamp}.csv": calls.lines(),
        f"api_precision_compare_details_{stamp}.csv": table.lines(found),
    }
