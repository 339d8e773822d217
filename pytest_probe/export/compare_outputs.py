"""Two devices' outputs of the same calls compared without a reference: `pytest-probe compare --direct`, which writes
accuracy_checking_result_*.csv and accuracy_checking_details_*.csv in PaddleAPEX's columns.

An output is compared with another device's by PaddleAPEX's flow, msprobe's rules, torch.testing's tolerances, or by
equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.export.details import MEASURED, OF_RULE, PADDLEAPEX_DETAILS, Detail, check_same_dump
from pytest_probe.export.output_folders import COMMAND, OutputFolder, Returned, Tensor, Value
from pytest_probe.export.table import BLANK, CallStatuses, Table, status_of, worst
from pytest_probe.model.dump import Direction
from pytest_probe.model.result import number
from pytest_probe.model.verdict import Outcome, OutputVerdict, Verdict
from pytest_probe.numerics.arrays import equal_bits, not_close
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype
from pytest_probe.numerics.tool_metrics import Measures, applying
from pytest_probe.standards.tools import TOOLS, Tool
from pytest_probe.standards.tools.release import PASS, RuleVerdict, zeros
from pytest_probe.standards.tools.tool import is_dropout
from pytest_probe.standards.tools.tool import status as status_by
from pytest_probe.system.tensor_files.paddle_pickle import OtherValue

# What the tool takes for one kind of numbers; of others it compares none.
_KINDS = ({"float16", "float32", "float64"}, {"bool", "uint8"}, {"int32", "int64"})
_RATIOS = frozenset(
    ("error_balance", "rmse", "small_value_error_ratio", "max_rel_error", "mean_rel_error"),
)
_ALWAYS = frozenset(("cosine_distance", "max_abs_error", "thousandth_ratio", "ten_thousandth_ratio"))
_INTEGERS = frozenset(("binary_mismatch_ratio",))
# The tool prints these as they are in the arithmetic's own dtype.
_IN_DTYPE = frozenset(("max_abs_error", "max_rel_error", "mean_rel_error"))
_WITH_RATIOS, _NARROW = ("float16", "bfloat16", "float32"), ("float16", "bfloat16")
_DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


class OutputRow(Detail, frozen=True):
    """One output. lost: the tool ends at it, and drops the call. tensor is the device's dtype and shape."""

    lost: bool = False
    tensor: tuple[str, tuple[int, ...]] = ("", ())
    measures: Measures = Measures(0)


class DirectRule(Struct, frozen=True):
    """tool: whose metrics the file has, and whose verdict counts where there is no closeness, which gives the reason
    why outputs are not close. as_tool: statuses, and what is lost, are PaddleAPEX's own; of_zeros: dropouts are;
    same_dtype: two float dtypes cannot be compared."""

    tool: Tool
    closeness: Callable[[Tensor, Tensor], str] | None = None
    as_tool: bool = False
    of_zeros: bool = False
    same_dtype: bool = False

    def judge(self, row: OutputRow, api: str, device: Tensor, benchmark: Tensor) -> OutputRow:
        """The row of two tensors of one shape, with what the rule says of them."""
        if self.of_zeros:
            device, benchmark = _as_kept(device), _as_kept(benchmark)
        unlike = self._unlike_kinds(device, benchmark)
        if unlike:
            return replace(row, status="error", message=unlike)
        floating = device.array.dtype.kind not in "biu"
        if self.of_zeros and floating and not device.array.size:
            return replace(row, message="empty: the tool ends here, and drops the call", lost=True)
        actual, expected = (_numbers(side, own=not self.of_zeros) for side in (device, benchmark))
        ruling, measures = self.tool.beside(api, device.dtype if floating else actual.dtype.name, actual, expected)
        if self.closeness is not None:
            reason = self.closeness(device, benchmark)
            ruling = RuleVerdict("error", reason) if reason else PASS
        filled = self._filled(api, device.dtype, measures) if floating else _INTEGERS
        known = {name: number(value) for name in filled if (value := getattr(measures, name)) is not None}
        arithmetic = np.result_type(device.array, benchmark.array).name if floating else "float64"
        with np.errstate(over="ignore"):
            printed = {name: str(np.asarray(known[name], arithmetic)) for name in _IN_DTYPE & known.keys()}
        metrics = known if arithmetic == "float64" else {**known, **printed}
        status = status_of(ruling.verdict)
        return replace(row, status=status, message=ruling.reason, metrics=metrics, measures=measures)

    def _unlike_kinds(self, device: Tensor, benchmark: Tensor) -> str:
        names = [side.array.dtype.name for side in (device, benchmark)]
        if self.of_zeros:
            alike = any(kind.issuperset(names) for kind in _KINDS)
        elif self.same_dtype:
            names = [device.dtype, benchmark.dtype]
            alike = names[0] == names[1]
        else:
            kinds = [side.array.dtype.kind for side in (device, benchmark)]
            # NumPy's kind of bfloat16 is V.
            alike = len({"f" if kind == "V" else kind for kind in kinds}) == 1
        if not alike and names[0] == names[1]:
            return f"PaddleAPEX compares no {names[0]}"
        return "" if alike else f"{names[0]} and the benchmark's {names[1]} cannot be compared"

    def _filled(self, api: str, dtype: str, measures: Measures) -> frozenset[str]:
        how, more = self.tool.release.status, frozenset[str]()
        cosine, largest = how.checks[:2] if how.checks else (None, None)
        if cosine and largest and dtype in _NARROW:
            # The share within 1 % is asked for where neither the cosine nor the largest error decided.
            near = status_by(replace(how, checks=(cosine,)), dtype, measures).verdict == "pass"
            undecided = near and not largest.holds(number(measures.max_abs_error))
            more |= {"hundredth_ratio"} if undecided else set()
        if dtype not in _WITH_RATIOS:
            return _ALWAYS | more
        listed = OF_RULE.get(self.tool.lists.rule(api, dtype).name) if self.of_zeros and not self.as_tool else None
        columns = frozenset(MEASURED[column] for column in listed) if listed else _RATIOS
        return _ALWAYS | more | columns


def _as_kept(side: Tensor) -> Tensor:
    """bfloat16 as PaddleAPEX keeps it, in float32."""
    return Tensor(side.array.astype(np.float32), side.dtype) if side.array.dtype.name == "bfloat16" else side


def _numbers(side: Tensor, own: bool) -> AnyArray:
    """The array; in its numbers' own dtype where that is narrower."""
    if not own or side.array.dtype.kind in "biu" or side.dtype == side.array.dtype.name:
        return side.array
    return side.array.astype(numpy_dtype(side.dtype))


def _other_bits(device: Tensor, benchmark: Tensor) -> str:
    size = device.array.size
    other = round(size * (1 - equal_bits(device.array, benchmark.array)))
    return f"{other:,} of {size:,} elements have other bits" if other else ""


DIRECT_RULES: Mapping[str, DirectRule] = {
    "paddleapex": DirectRule(TOOLS["paddleapex"], as_tool=True, of_zeros=True),
    "paddleapex-documented": DirectRule(TOOLS["paddleapex-documented"], of_zeros=True),
    "msprobe": DirectRule(TOOLS["msprobe"]),
    "close": DirectRule(TOOLS["paddleapex"], lambda a, b: not_close(a.array, b.array, (a.dtype, b.dtype))),
    "exact": DirectRule(TOOLS["paddleapex"], _other_bits, same_dtype=True),
}


class ComparedDirection(Struct, frozen=True):
    """status is BLANK where neither side has it."""

    rows: tuple[OutputRow, ...] = ()
    status: str = BLANK
    reason: str = ""


class ComparedCall(Struct, frozen=True):
    name: str
    directions: Mapping[Direction, ComparedDirection]

    @property
    def rows(self) -> Iterator[OutputRow]:
        return (row for found in self.directions.values() for row in found.rows)

    @property
    def statuses(self) -> tuple[str, ...]:
        """Of the whole, and of each output: the tool may overwrite an error."""
        return (*(found.status for found in self.directions.values()), *(row.status for row in self.rows))

    def judged(self) -> Iterator[tuple[str, str, str]]:
        """Status, name and reason of each output; of a dropout, which has no rows, those of a direction."""
        for way, found in self.directions.items():
            yield from ((row.status, row.name, row.message) for row in found.rows)
            if not found.rows and found.status != BLANK:
                yield found.status, f"{self.name}.{way}", found.reason


def check_common(device: OutputFolder, benchmark: OutputFolder, option: str = COMMAND) -> int:
    """How many calls are on both sides. Raises SettingsError where they have not half of their calls in common."""
    return check_same_dump(option, device.calls.keys(), benchmark.calls.keys(), "calls")


def compare_folders(device: OutputFolder, benchmark: OutputFolder, rule: DirectRule) -> Iterator[ComparedCall]:
    """Every call of both, in the device's order, then what the benchmark alone has. Raises SettingsError."""
    check_common(device, benchmark)
    for name in dict.fromkeys((*device.calls, *benchmark.calls)):
        found = {way: compare_direction(name, way, device, benchmark, rule) for way in _DIRECTIONS}
        yield ComparedCall(_displayed(name, device, benchmark), found)


def _displayed(name: str, device: OutputFolder, benchmark: OutputFolder) -> str:
    return device.calls.get(name) or benchmark.calls.get(name, name)


def compare_direction(
    name: str, way: Direction, device: OutputFolder, benchmark: OutputFolder, rule: DirectRule
) -> ComparedDirection:
    """A call in a direction."""
    api = name.rpartition("::")[2].rpartition(".")[0]
    entry = f"{_displayed(name, device, benchmark)}.{way}"
    one, other = (_read(side, name, way) for side in (device, benchmark))
    if one is None and other is None:
        return ComparedDirection()
    for side, here, there in (("device", one, other), ("benchmark", other, one)):
        if isinstance(here, str):
            return _skipped(entry, f"the {side}'s outputs cannot be used: {here}")
        if there is None:
            return _skipped(entry, f"only in the {side}'s outputs")
    assert isinstance(one, Returned)
    assert isinstance(other, Returned)
    if way == "backward" and not one.values and not other.values:
        return ComparedDirection()
    if way == "backward" and len(one.values) != len(other.values) and not rule.as_tool:
        # An input with stop_gradient has None on the one side, and no place on the other.
        one, other = (
            replace(side, values=tuple(value for value in side.values if value is not None)) for side in (one, other)
        )
    unlike = _unlike(one, other)
    if unlike and rule.as_tool and other.several:
        return _skipped(entry, f"{unlike}: the tool ends here, and drops the call")
    if unlike:
        return ComparedDirection((OutputRow(f"{entry}.output.0", "error", unlike),), "error", unlike)
    pairs = list(zip(one.values, other.values, strict=True))
    if rule.of_zeros and is_dropout(api):
        # Of gradients the first one alone.
        return _dropout(entry, pairs[:1] if way == "backward" else pairs)
    return _judged(tuple(_row(f"{entry}.output.{index}", api, *pair, rule) for index, pair in enumerate(pairs)), rule)


def _read(side: OutputFolder, name: str, direction: Direction) -> Returned | str | None:
    """The reason where it cannot be read."""
    try:
        return side.read(name, direction)
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)


def _unlike(device: Returned, benchmark: Returned) -> str:
    """How the two differ as a whole."""
    here, there = len(device.values), len(benchmark.values)
    if device.several != benchmark.several and max(here, there) != 1:
        sides = (f"a list of {len(side.values)}" if side.several else "one output" for side in (device, benchmark))
        return ", the benchmark has ".join(sides)
    return f"{here} output{'s' * (here != 1)}, the benchmark has {there}" if here != there else ""


def _skipped(entry: str, reason: str) -> ComparedDirection:
    return ComparedDirection((OutputRow(f"{entry}.output.0", "SKIP", reason),), "SKIP", reason)


def _judged(rows: tuple[OutputRow, ...], rule: DirectRule) -> ComparedDirection:
    """The tool takes the last status that is no pass; and what it skips passes."""
    statuses = [row.status for row in rows]
    lost = next((row.message for row in rows if row.lost), "")
    if lost:
        return ComparedDirection(rows, "SKIP" if rule.as_tool else worst(statuses), lost)
    if rule.of_zeros:
        bad = [status for status in statuses if status in ("warning", "error")]
        status = (bad[-1] if rule.as_tool else worst(bad)) if bad else "pass"
    else:
        status = worst(statuses, default="pass")
    return ComparedDirection(rows, status, next((row.message for row in rows if row.status == "SKIP"), ""))


def _dropout(entry: str, values: Sequence[tuple[Value, Value]]) -> ComparedDirection:
    """By the share of zeros, without a row."""
    tensors = [(a, b) for a, b in values if isinstance(a, Tensor) and isinstance(b, Tensor)]
    if len(tensors) < len(values) or any(a.array.shape != b.array.shape for a, b in tensors):
        return _skipped(entry, "no two tensors of one shape: the tool ends here, and drops the call")
    rulings = [zeros(a.array, b.array) for a, b in reversed(tensors)]
    found = {status_of(ruling.verdict): ruling.reason for ruling in rulings}
    status = worst(found)
    return ComparedDirection((), status, found.get(status, ""))


def _row(name: str, api: str, device: Value, benchmark: Value, rule: DirectRule) -> OutputRow:
    if isinstance(device, OtherValue) and isinstance(benchmark, OtherValue):
        return OutputRow(name, "SKIP", f"a {device.kind} among the outputs is not compared")
    if device is None and benchmark is None:
        return OutputRow(name, "SKIP", "None on both sides")
    if not isinstance(benchmark, type(device)):
        return OutputRow(name, "error", f"{_kind(device)}, the benchmark has {_kind(benchmark)}")
    if not isinstance(device, Tensor):
        dtypes = str(type(benchmark)), str(type(device))
        if bool(device == benchmark):
            return OutputRow(name, "pass", "", *dtypes, metrics={"binary_mismatch_ratio": "0"})
        return OutputRow(name, "error", f"{device!r}, the benchmark has {benchmark!r}", *dtypes)
    prefix = "paddle" if api.startswith("paddle.") else "torch"
    shape = device.array.shape
    cells = (f"{prefix}.{benchmark.dtype}", f"{prefix}.{device.dtype}", str(shape))
    row = OutputRow(name, "SKIP", "", *cells, tensor=(device.dtype, shape))
    if shape != benchmark.array.shape:
        return replace(row, status="error", message=f"shape {shape}, the benchmark has {benchmark.array.shape}")
    return rule.judge(row, api, device, benchmark)


def _kind(value: Value) -> str:
    """What a message calls it."""
    if isinstance(value, Tensor):
        return "a tensor"
    return repr(value) if not isinstance(value, OtherValue) else f"a {value.kind}"


def direct_files(stamp: str, found: Sequence[ComparedCall]) -> Mapping[str, Iterable[Sequence[str]]]:
    """The lines of both files by name."""
    calls = CallStatuses()
    for call in found:
        calls.by_call[call.name] = {way: direction.status for way, direction in call.directions.items()}
        if skipped := [each.reason for each in call.directions.values() if each.status == "SKIP"]:
            calls.messages[call.name] = "; ".join(skipped)
    details = Table(PADDLEAPEX_DETAILS).lines(row for call in found for row in call.rows)
    return {
        f"accuracy_checking_result_{stamp}.csv": calls.lines("API name"),
        f"accuracy_checking_details_{stamp}.csv": details,
    }


def verdict_of(found: ComparedDirection, standard: str) -> Verdict:
    """That of an item. An output that is an error fails it, even if PaddleAPEX gives the call a warning."""
    outputs = tuple(_output(row, standard) for row in found.rows)
    if found.status in (BLANK, "SKIP"):
        reason = found.reason or "neither side has its outputs"
        return Verdict("skip", standard, reason, kind="no outputs to compare", outputs=outputs)
    status = worst((found.status, *(row.status for row in found.rows)))
    bad = next((output for output in outputs if output.verdict == status), None)
    reason = found.reason if bad is None or status == "pass" else f"{bad.name}: {bad.reason}"
    dtype = outputs[0].dtype if outputs else ""
    return Verdict(cast(Outcome, status), standard, reason, dtype=dtype, outputs=outputs)


def _output(row: OutputRow, standard: str) -> OutputVerdict:
    dtype, shape = row.tensor
    name, verdict = f"output.{row.name.rpartition('.output.')[2]}", "skip" if row.status == "SKIP" else row.status
    metrics = applying(row.measures) if dtype else {}
    return OutputVerdict(name, shape, dtype, cast(Outcome, verdict), standard, row.message, metrics, measures=metrics)
