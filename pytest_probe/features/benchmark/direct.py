"""Two devices' outputs of the same calls compared without a reference: `pytest-probe compare --direct`, which writes
accuracy_checking_result_*.csv and accuracy_checking_details_*.csv in PaddleAPEX's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.features.benchmark.direct_rules import DirectRule
from pytest_probe.features.benchmark.output_folders import COMMAND, OutputFolder, Returned, Tensor, Value
from pytest_probe.features.benchmark.same_dump import check_same_dump
from pytest_probe.features.msprobe_csv.rows import BLANK, DETAILS, OF_RULE, RESULT, STATUSES, status_of
from pytest_probe.model.dump import Direction
from pytest_probe.model.verdict import Outcome, OutputVerdict, Verdict
from pytest_probe.numerics.tool_metrics import Measures, applying
from pytest_probe.standards.tools.release import RuleVerdict
from pytest_probe.standards.tools.tool import is_dropout
from pytest_probe.system.tensor_files.paddle_pickle import OtherValue

_RESULT_FILE, _DETAILS_FILE = "accuracy_checking_result_{}.csv", "accuracy_checking_details_{}.csv"
_COLUMNS = tuple(column for column in DETAILS if column not in OF_RULE["ulp"])
_DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


class OutputRow(Struct, frozen=True):
    """One output. cells: dtypes, shape and metrics, by column; lost: the tool ends at it, and drops the call. device is
    the tensor's dtype and shape."""

    name: str
    ruling: RuleVerdict
    cells: Mapping[str, str] = {}
    lost: bool = False
    device: tuple[str, tuple[int, ...]] = ("", ())
    measures: Measures = Measures(0)

    @property
    def status(self) -> str:
        return status_of(self.ruling.verdict)

    def line(self) -> list[str]:
        own = {**self.cells, _COLUMNS[0]: self.name, "Status": self.status, "Message": self.ruling.reason}
        return [own.get(column, BLANK) for column in _COLUMNS]


class ComparedDirection(Struct, frozen=True):
    """status is BLANK where neither side has it."""

    rows: tuple[OutputRow, ...] = ()
    status: str = BLANK
    reason: str = ""


class ComparedCall(Struct, frozen=True):
    name: str
    forward: ComparedDirection
    backward: ComparedDirection

    @property
    def directions(self) -> tuple[ComparedDirection, ComparedDirection]:
        return self.forward, self.backward

    @property
    def rows(self) -> tuple[OutputRow, ...]:
        return (*self.forward.rows, *self.backward.rows)

    @property
    def statuses(self) -> tuple[str, ...]:
        """Of the whole, and of each output: the tool may overwrite an error."""
        return (self.forward.status, self.backward.status, *(row.status for row in self.rows))

    def judged(self) -> Iterator[tuple[str, str, str]]:
        """Status, name and reason of each output; of a dropout, which has no rows, those of a direction."""
        for way, found in zip(_DIRECTIONS, self.directions, strict=True):
            yield from ((row.status, row.name, row.ruling.reason) for row in found.rows)
            if not found.rows and found.status != BLANK:
                yield found.status, f"{self.name}.{way}", found.reason

    def line(self) -> list[str]:
        row = [self.name, self.forward.status, self.backward.status]
        skipped = [found.reason for found in self.directions if found.status == "SKIP"]
        return [*row, "; ".join(skipped)] if skipped else row


def check_common(device: OutputFolder, benchmark: OutputFolder, option: str = COMMAND) -> int:
    """How many calls are on both sides. Raises SettingsError where they have not half of their calls in common."""
    return check_same_dump(option, device.calls.keys(), benchmark.calls.keys(), "calls")


def compare_folders(device: OutputFolder, benchmark: OutputFolder, rule: DirectRule) -> Iterator[ComparedCall]:
    """Every call of both, in the device's order, then what the benchmark alone has. Raises SettingsError."""
    check_common(device, benchmark)
    for name in dict.fromkeys((*device.calls, *benchmark.calls)):
        forward, backward = (compare_direction(name, way, device, benchmark, rule) for way in _DIRECTIONS)
        yield ComparedCall(_shown(name, device, benchmark), forward, backward)


def _shown(name: str, device: OutputFolder, benchmark: OutputFolder) -> str:
    return device.calls.get(name) or benchmark.calls.get(name, name)


def compare_direction(
    name: str, way: Direction, device: OutputFolder, benchmark: OutputFolder, rule: DirectRule
) -> ComparedDirection:
    """A call in a direction."""
    api = name.rpartition("::")[2].rpartition(".")[0]
    entry = f"{_shown(name, device, benchmark)}.{way}"
    return _direction(entry, api, _read(device, name, way), _read(benchmark, name, way), rule)


def _read(side: OutputFolder, name: str, direction: Direction) -> Returned | str | None:
    """The reason where it cannot be read."""
    try:
        return side.read(name, direction)
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)


def _direction(
    entry: str, api: str, device: Returned | str | None, benchmark: Returned | str | None, rule: DirectRule
) -> ComparedDirection:
    backward = entry.endswith(".backward")
    if device is None and benchmark is None:
        return ComparedDirection()
    for side, here, other in (("device", device, benchmark), ("benchmark", benchmark, device)):
        if isinstance(here, str):
            return _skipped(entry, f"the {side}'s outputs cannot be used: {here}")
        if other is None:
            return _skipped(entry, f"only in the {side}'s outputs")
    assert isinstance(device, Returned)
    assert isinstance(benchmark, Returned)
    if backward and not device.values and not benchmark.values:
        return ComparedDirection()
    if backward and len(device.values) != len(benchmark.values) and not rule.as_tool:
        # An input with stop_gradient has None on the one side, and no place on the other.
        device, benchmark = (replace(side, values=_there(side)) for side in (device, benchmark))
    unlike = _unlike(device, benchmark)
    if unlike and rule.as_tool and benchmark.several:
        return _skipped(entry, f"{unlike}: the tool ends here, and drops the call")
    if unlike:
        row = OutputRow(f"{entry}.output.0", RuleVerdict("error", unlike))
        return ComparedDirection((row,), "error", unlike)
    if rule.of_zeros and is_dropout(api):
        return _dropout(entry, device, benchmark, rule, backward)
    pairs = enumerate(zip(device.values, benchmark.values, strict=True))
    return _judged(tuple(_row(f"{entry}.output.{index}", api, *pair, rule) for index, pair in pairs), rule)


def _there(side: Returned) -> tuple[Value, ...]:
    return tuple(value for value in side.values if value is not None)


def _unlike(device: Returned, benchmark: Returned) -> str:
    """How the two differ as a whole."""
    here, there = len(device.values), len(benchmark.values)
    if device.several != benchmark.several and max(here, there) != 1:
        listed, alone = "a list of {}", "one output"
        sides = (listed.format(len(side.values)) if side.several else alone for side in (device, benchmark))
        return ", the benchmark has ".join(sides)
    return f"{here} output{'s' * (here != 1)}, the benchmark has {there}" if here != there else ""


def _skipped(entry: str, reason: str) -> ComparedDirection:
    return ComparedDirection((OutputRow(f"{entry}.output.0", RuleVerdict("skip", reason)),), "SKIP", reason)


def _judged(rows: tuple[OutputRow, ...], rule: DirectRule) -> ComparedDirection:
    """The tool takes the last status that is no pass; and what it skips passes."""
    statuses = [row.status for row in rows]
    lost = next((row.ruling.reason for row in rows if row.lost), "")
    if lost:
        return ComparedDirection(rows, max(statuses, key=STATUSES.index) if not rule.as_tool else "SKIP", lost)
    if rule.of_zeros:
        bad = [status for status in statuses if status in ("warning", "error")]
        status = (bad[-1] if rule.as_tool else max(bad, key=STATUSES.index)) if bad else "pass"
    else:
        status = max(statuses, key=STATUSES.index, default="pass")
    return ComparedDirection(rows, status, next((row.ruling.reason for row in rows if row.status == "SKIP"), ""))


def _dropout(entry: str, device: Returned, benchmark: Returned, rule: DirectRule, backward: bool) -> ComparedDirection:
    """By the share of zeros, without a row; of gradients the first one alone."""
    values = list(zip(device.values, benchmark.values, strict=True))[: 1 if backward else None]
    tensors = [(a, b) for a, b in values if isinstance(a, Tensor) and isinstance(b, Tensor)]
    if len(tensors) < len(values) or any(a.array.shape != b.array.shape for a, b in tensors):
        return _skipped(entry, "no two tensors of one shape: the tool ends here, and drops the call")
    rulings = [rule.zeros(a, b) for a, b in tensors]
    worst = max(rulings, key=lambda ruling: STATUSES.index(status_of(ruling.verdict)))
    return ComparedDirection((), status_of(worst.verdict), worst.reason)


def _row(name: str, api: str, device: Value, benchmark: Value, rule: DirectRule) -> OutputRow:
    if isinstance(device, OtherValue) and isinstance(benchmark, OtherValue):
        return OutputRow(name, RuleVerdict("skip", f"a {device.kind} among the outputs is not compared"))
    if device is None and benchmark is None:
        return OutputRow(name, RuleVerdict("skip", "None on both sides"))
    if not isinstance(benchmark, type(device)):
        reason = f"{_kind(device)}, the benchmark has {_kind(benchmark)}"
        return OutputRow(name, RuleVerdict("error", reason))
    if not isinstance(device, Tensor):
        equal = bool(device == benchmark)
        cells = {"Bench Dtype": str(type(benchmark)), "DEVICE Dtype": str(type(device))}
        cells |= {"二进制一致错误率": "0"} if equal else {}
        reason = "" if equal else f"{device!r}, the benchmark has {benchmark!r}"
        return OutputRow(name, RuleVerdict("pass" if equal else "error", reason), cells)
    prefix = "paddle" if api.startswith("paddle.") else "torch"
    of_device = device.dtype, device.array.shape
    shape = str(device.array.shape)
    cells = {
        "Bench Dtype": f"{prefix}.{benchmark.dtype}",
        "DEVICE Dtype": f"{prefix}.{device.dtype}",
        "Shape": shape,
    }
    if device.array.shape != benchmark.array.shape:
        ruling = RuleVerdict("error", f"shape {shape}, the benchmark has {benchmark.array.shape}")
        return OutputRow(name, ruling, cells, device=of_device)
    found = rule.judge(api, device, benchmark)
    return OutputRow(name, found.ruling, {**cells, **dict(found.cells())}, found.lost, of_device, found.measures)


def _kind(value: Value) -> str:
    """What a message calls it."""
    if isinstance(value, Tensor):
        return "a tensor"
    return repr(value) if not isinstance(value, OtherValue) else f"a {value.kind}"


def direct_files(stamp: str, calls: Sequence[ComparedCall]) -> Mapping[str, Iterable[Sequence[str]]]:
    """The lines of both files by name."""
    return {
        _RESULT_FILE.format(stamp): [RESULT, *(call.line() for call in calls)],
        _DETAILS_FILE.format(stamp): [_COLUMNS, *(row.line() for call in calls for row in call.rows)],
    }


def verdict_of(found: ComparedDirection, standard: str) -> Verdict:
    """That of an item. An output that is an error fails it, even if PaddleAPEX gives the call a warning."""
    outputs = tuple(_output(row, standard) for row in found.rows)
    if found.status in (BLANK, "SKIP"):
        reason = found.reason or "neither side has its outputs"
        return Verdict("skip", standard, reason, kind="no outputs to compare", outputs=outputs)
    status = max([found.status, *(row.status for row in found.rows)], key=STATUSES.index)
    bad = next((output for output in outputs if output.verdict == status), None)
    reason = found.reason if bad is None or status == "pass" else f"{bad.name}: {bad.reason}"
    dtype = outputs[0].dtype if outputs else ""
    return Verdict(cast(Outcome, status), standard, reason, dtype=dtype, outputs=outputs)


def _output(row: OutputRow, standard: str) -> OutputVerdict:
    dtype, shape = row.device
    name = f"output.{row.name.rpartition('.output.')[2]}"
    metrics = applying(row.measures) if dtype else {}
    return OutputVerdict(name, shape, dtype, row.ruling.verdict, standard, row.ruling.reason, metrics, measures=metrics)
