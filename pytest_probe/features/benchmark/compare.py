"""Three-party judging afterwards: a device's results against a benchmark's, into api_precision_compare_*.csv."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct

from pytest_probe import frameworks
from pytest_probe.features.benchmark.paddleapex_multi import is_paddleapex, paddleapex_cells, with_known_share
from pytest_probe.features.msprobe_csv.rows import (
    ABSOLUTE,
    ALGORITHM,
    ALGORITHMS,
    BINARY,
    BLANK,
    COMPARE_DETAILS,
    COMPARE_RESULT,
    MESSAGE,
    NAME,
    OUTCOME,
    PADDLEAPEX_DETAILS,
    RATIOS,
    STATUSES,
    THOUSANDTH,
    ULP,
    Row,
    status_of,
)
from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards import STANDARDS
from pytest_probe.standards.tables import classes_of
from pytest_probe.standards.tools import COMPARES, DEFAULT
from pytest_probe.standards.tools.release import RuleVerdict
from pytest_probe.standards.tools.tool import UNSUPPORTED, Decision

# Standards that judge by an output's distance from the reference; other ones of our own judge what has no one value.
_BY_VALUE = ("noise", "exact")
_NO_VALUE = frozenset(("random", "uninitialised"))
_FOLDER_TELLS = "only a folder of --probe-out says whether they are what the API promises"
_DETAILS_FILE, _RESULT_FILE = "api_precision_compare_details_{}.csv", "api_precision_compare_result_{}.csv"


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
    keys = dict.fromkeys((*device, *benchmark))
    return [_compared(key, device.get(key), benchmark.get(key), standard) for key in keys]


def _compared(key: str, device: Row | None, benchmark: Row | None, standard: str) -> ComparedRow:
    if device is None or benchmark is None:
        where = "benchmark" if device is None else "device"
        return ComparedRow(key, device, benchmark, Decision("", RuleVerdict("skip", f"only in the {where}'s results")))
    if not device.dtype:
        reason = device.reason or "no output to compare"
        return ComparedRow(key, device, benchmark, Decision("", RuleVerdict("skip", reason)))
    if not benchmark.dtype and standard != "paddleapex":
        reason = f"the benchmark has no output: {benchmark.reason}"
        return ComparedRow(key, device, benchmark, Decision("", RuleVerdict("skip", reason)))
    ruling = None if standard == "paddleapex" and not device.judge else _alone(device)
    if ruling is not None:
        return ComparedRow(key, device, benchmark, Decision("", ruling))
    decision = COMPARES[standard](device.api, device.dtype, device.measures, benchmark.measures)
    if is_paddleapex(standard) and decision.rule == "binary":
        decision = with_known_share(decision, device, as_tool=standard == "paddleapex")
    return ComparedRow(key, device, benchmark, decision)


def _alone(device: Row) -> RuleVerdict | None:
    """The device's own verdict on an output that has no one right value, as of a random API: its distance from the
    reference says nothing, nor does a benchmark's. None where the two are to be compared."""
    if device.judge in _BY_VALUE:
        return None
    no_value = _NO_VALUE & classes_of(frameworks.signatures().canonical(device.api))
    if not device.judge:
        return RuleVerdict("skip", f"{min(no_value)} values; {_FOLDER_TELLS}") if no_value else None
    if device.judge in STANDARDS and not no_value:
        return None
    return RuleVerdict(cast(Outcome, device.status), device.reason)


def compared_files(
    stamp: str, found: Sequence[ComparedRow], standard: str = DEFAULT
) -> Mapping[str, Iterable[Sequence[str]]]:
    """The lines of api_precision_compare_details and _result by name, in msprobe's columns or in PaddleAPEX's."""
    like_apex = is_paddleapex(standard)
    columns = PADDLEAPEX_DETAILS if like_apex else COMPARE_DETAILS
    cells = (
        {**_detail(item), **(paddleapex_cells(item.decision, item.device, item.benchmark) if like_apex else {})}
        for item in found
    )
    details = [[row.get(column, BLANK) for column in columns] for row in cells]
    summary = [COMPARE_RESULT, *_summary(found, standard)]
    return {_RESULT_FILE.format(stamp): summary, _DETAILS_FILE.format(stamp): [columns, *details]}


def _statuses(found: Iterable[ComparedRow]) -> dict[str, dict[str, str]]:
    """The worst status of each API call (behind its dump's label), by direction."""
    calls: dict[str, dict[str, str]] = {}
    for item in found:
        known, direction = calls.setdefault(item.call, {}), item.row.direction
        known[direction] = max(known.get(direction, item.status), item.status, key=STATUSES.index)
    return calls


def _summary(found: Sequence[ComparedRow], standard: str) -> Iterator[Sequence[str]]:
    last = {item.call: item.decision for item in found}
    reasons = {item.call: item.decision.ruling.reason for item in found if item.status == "SKIP"}
    for call, known in _statuses(found).items():
        if standard == "paddleapex" and last[call].ruling == UNSUPPORTED:
            yield [call, "skip", "skip", UNSUPPORTED.reason]
            continue
        yield [call, known.get("forward", BLANK), known.get("backward", BLANK), reasons.get(call, "")]


def _detail(item: ComparedRow) -> dict[str, str]:
    decision = item.decision
    cells = {NAME: item.key, OUTCOME: item.status, MESSAGE: decision.ruling.reason}
    cells[ALGORITHM] = ALGORITHMS.get(decision.rule, BLANK)
    for compared in decision.compared:
        value, result = RATIOS[compared.metric]
        cells[value], cells[result] = _ratio(compared.value), compared.ruling.verdict
    if item.device is not None:
        cells |= _of_rule(decision, item.device.measures)
    return cells


def _of_rule(decision: Decision, device: Measures) -> dict[str, str]:
    verdict = decision.ruling.verdict
    if decision.rule in ("absolute_threshold", "accumulative"):
        shares = {name: getattr(device, name) for name in ABSOLUTE}
        values = {cells[0]: _number(shares[name]) for name, cells in ABSOLUTE.items()}
        return values | {cells[1]: "error" if shares[name] else "pass" for name, cells in ABSOLUTE.items()}
    if decision.rule == "binary":
        return dict(zip(BINARY, (_number(device.binary_mismatch_ratio), verdict), strict=True))
    if decision.rule == "thousandth":
        return dict(zip(THOUSANDTH, (_number(device.thousandth_ratio), verdict), strict=True))
    if decision.rule == "ulp":
        numbers = (_number(device.ulp_mean), _number(device.ulp_over_ratio), _ratio(decision.over_ratio))
        return dict(zip(ULP, (*numbers, verdict), strict=True))
    return {}


def _ratio(value: float | None) -> str:
    """The tools print NaN also where a NaN or inf is unlike the benchmark's."""
    return "nan" if value == math.inf else _number(value)


def _number(value: float | None) -> str:
    return BLANK if value is None else f"{value:.14f}"
