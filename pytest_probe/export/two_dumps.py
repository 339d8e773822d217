"""The tables that ptdbg_ascend 2.3 and 4.0 and msprobe 1.0.4 write of two dumps, in their columns, and ptdbg's advice.

Values are read where an item runs, and files are written where all results are, maybe in another process. So a result
carries its rows: nothing is read twice in a process that has other work, and results.jsonl has the tables as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from pytest_probe.export.dump_metrics import NO_BENCH, Columns, accuracy, not_found
from pytest_probe.export.table import Column, Table
from pytest_probe.model.dump import Frame
from pytest_probe.model.pairing import TableRow, TableTensor
from pytest_probe.model.result import number
from pytest_probe.reports.results_file import RESULTS, folder_of, read_results, write_rows
from pytest_probe.system.files import write_whole

_Stack: TypeAlias = Callable[[str], tuple[Frame, ...]]
_METRICS = ("Cosine", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
_STATISTICS = ("max", "min", "mean", "l2norm")
# Dtypes in whose place 4.0 and msprobe take each other.
_EXCHANGED = ({"float16", "float32"}, {"float16", "bfloat16"})


class _Row(Struct, frozen=True):
    """A tensor of A, and what the tool takes for its counterpart. printed has the metrics and the message, stack the
    frames of the call."""

    a: TableTensor
    b: TableTensor | None
    printed: Columns
    stack: str = ""


class _Tool(Struct, frozen=True):
    """How a tool writes its table. field is that of a row with what it prints; dtype is what it calls a dtype, unknown
    what it writes of a side that has no such tensor, none of a metric that tells nothing."""

    field: str
    metrics: int = 5
    statistics: int = 4
    dtype: str = "Tensor Dtype"
    unknown: str = "Nan"
    none: str = "Nan"

    @property
    def is_ptdbg(self) -> bool:
        return self.field != "msprobe"

    @property
    def is_older(self) -> bool:
        return self.field == "ptdbg_23"

    def table(self, *, by_values: bool, stacks: bool) -> Table:
        """by_values: dumps have values, and not their statistics alone."""
        pairs = [_both(name, partial(self._statistic, place)) for place, name in enumerate(_STATISTICS)]
        statistics = chain(*zip(*pairs[: self.statistics], strict=True))
        columns = [
            *_both("Name", lambda tensor: tensor.name if self.is_ptdbg else tensor.place),
            *_both(self.dtype, lambda tensor: tensor.dtype),
            *_both("Tensor Shape", lambda tensor: list(tensor.shape)),
        ]
        if by_values:
            columns += [_printed(name, place) for place, name in enumerate(_METRICS[: self.metrics])]
            columns += [*statistics, Column("Accuracy Reached or Not", self.verdict), _printed("Err_message", -1)]
        else:
            names = [f"{name.capitalize()} diff" for name in _STATISTICS]
            columns += [Column(name, partial(self._difference, place)) for place, name in enumerate(names)]
            names = [] if self.is_ptdbg else [f"{name}RelativeErr" for name in ("Max", "Min", "Mean", "Norm")]
            columns += [Column(name, partial(self._relative, place)) for place, name in enumerate(names)]
            columns += statistics
        if not self.is_ptdbg:
            columns += (
                [Column("Data_name", lambda row: (row.b and row.a.file) or "-1")] if by_values else self._warnings()
            )
        # A table of pandas has nothing for NaN.
        columns += [Column("NPU_Stack_Info", lambda row: row.stack)] if stacks else []
        return Table(tuple(columns), self.unknown, lambda value: "" if value != value else str(value))

    def rows(self, call: _Call, frames: Iterable[Frame]) -> Iterator[_Row]:
        """For all but the older tool shapes and dtypes count. The frames stand in the first row."""
        found_frames = [[frame.file, str(frame.line), frame.function, frame.code] for frame in frames]
        stack = str(found_frames) if found_frames else ""
        matched = all(row.b is not None and (self.is_older or _are_alike(row.a, row.b)) for row in call.rows)
        for row in call.rows:
            found: Columns = getattr(row, self.field) if matched else ()
            if matched and not found and self.is_ptdbg:
                found = not_found(row.a.values_file)[self.field]
            yield _Row(row.a, row.b if matched else None, found or (*(self.none,) * self.metrics, NO_BENCH), stack)
            stack = ""

    def verdict(self, row: _Row) -> str:
        return accuracy(row.printed, is_older=self.is_older, none=self.none)

    def _statistic(self, place: int, tensor: TableTensor) -> Any:
        """ptdbg's of integers were computed in float32."""
        value = tensor.statistics[place]
        if value is None:
            return ("[]", "[]", "[]", "Nan")[place] if self.is_ptdbg else ""
        known = number(value) if isinstance(value, str) else value
        whole = "int" in tensor.dtype and not tensor.is_number
        return float(known) if self.is_ptdbg and whole else known

    def _pair(self, place: int, row: _Row) -> tuple[Any, Any] | None:
        """Both sides' statistic; None where it cannot be compared."""
        if row.b is None:
            return None
        one, other = self._statistic(place, row.a), self._statistic(place, row.b)
        return (one, other) if all(isinstance(each, (int, float)) for each in (one, other)) else None

    def _difference(self, place: int, row: _Row) -> Any:
        if (pair := self._pair(place, row)) is None:
            return None if row.b is None else self.none
        return pair[0] - pair[1]

    def _relative(self, place: int, row: _Row) -> str | None:
        if (pair := self._pair(place, row)) is None:
            return None if row.b is None else " "
        return "N/A" if pair[1] == 0 else f"{abs((pair[0] - pair[1]) / pair[1] * 100)}%"

    def _warnings(self) -> Iterator[Column]:
        def warned(row: _Row) -> bool:
            pairs = filter(None, (self._pair(place, row) for place in range(self.statistics)))
            return any(abs(one - other) / (max(abs(one), abs(other)) + 1e-10) > 0.5 for one, other in pairs)

        def message(row: _Row) -> str:
            return NO_BENCH if row.b is None else "Need double check api accuracy." if warned(row) else ""

        yield Column("Result", lambda row: None if row.b is None else "Warning" if warned(row) else "")
        yield Column("Err_message", message)


def _both(header: str, value: Callable[[TableTensor], object]) -> tuple[Column, Column]:
    a = Column(f"NPU {header}", lambda row: value(row.a))
    return a, Column(f"Bench {header}", lambda row: None if row.b is None else value(row.b))


def _printed(header: str, place: int) -> Column:
    return Column(header, lambda row: row.printed[place])


def _are_alike(a: TableTensor, b: TableTensor) -> bool:
    dtypes = {each.dtype.rpartition(".")[2] for each in (a, b)}
    return a.shape == b.shape and (len(dtypes) == 1 or dtypes in _EXCHANGED)


_TOOLS = {
    "compare_result_ptdbg_2.3.csv": _Tool("ptdbg_23", metrics=2, statistics=3),
    "compare_result_ptdbg_4.0.csv": _Tool("ptdbg_40"),
    "compare_result_msprobe.csv": _Tool("msprobe", dtype="Dtype", unknown="N/A", none="None"),
}


class _Call(Struct, frozen=True):
    """The rows of an entry. order is that in A's dump: by its lines, else forwards, then backwards in reverse; only
    dumps in lines, as ptdbg's, have stacks because their user wanted them in the table."""

    entry: str
    order: tuple[bool, int]
    has_stack: bool
    rows: tuple[TableRow, ...]


def write_tables(folder: Path, stacks: Mapping[str, _Stack], advice_of: str) -> Iterator[Path]:
    """The files of the results in a folder; a dump has its own, in a folder below where there are several. stacks gives
    the frames of A's entries, by the label of the dump. advice_of: the tool whose table advisor.txt speaks of."""
    calls: dict[str, list[_Call]] = {}
    for result in read_results(folder / RESULTS):
        if result.against is not None and result.against.rows:
            named, line, place = result.portable_id, result.against.dump_line, result.place or 0
            backward = result.direction == "backward"
            order = (False, line) if line else (backward, -place if backward else place)
            calls.setdefault(named.label, []).append(_Call(named.entry, order, bool(line), result.against.rows))
    for label, of_dump in calls.items():
        below = folder if len(calls) == 1 else folder_of(folder, label)
        below.mkdir(parents=True, exist_ok=True)
        yield from _written(below, sorted(of_dump, key=lambda call: call.order), stacks[label], advice_of)


def _written(folder: Path, calls: Sequence[_Call], stack: _Stack, advice_of: str) -> Iterator[Path]:
    by_values = any(row.ptdbg_40 and not row.a.is_number for call in calls for row in call.rows)
    has_stacks = any(call.has_stack and stack(call.entry) for call in calls)
    for name, tool in _TOOLS.items():
        if tool.is_older and not by_values:
            continue
        stacks = tool.is_ptdbg and has_stacks
        rows = [row for call in calls for row in tool.rows(call, stack(call.entry) if stacks else ())]
        table = tool.table(by_values=by_values, stacks=stacks)
        yield write_rows(folder / name, table.lines(rows), encoding="utf-8")
        if tool.field == advice_of and by_values:
            write_whole(folder / "advisor.txt", _advice(tool, rows).encode())
            yield folder / "advisor.txt"


_FINE = "All data in comparison result meets the accuracy requirements."
_FORWARD_INPUT = """1. Analyze the model to view the input source.
2. Check whether an inplace API causes the output result to overwrite the input result. \
That is, the fault is actually caused by a computation error.
3. The fault may be caused by memory corruption and further analysis is required."""
_BACKWARD_INPUT = "Check whether the forward computation result is affected."
_OUTPUT = "This is a {} API computation error. Check the computation implementation."
_BATCH_NORM = """Torch API batch_norm input not fixed, the following suggestions may fix it:
1. If use torch.nn.functional.batch_norm, you can set parameter training=False.
2. If use torch.nn.BatchNormXXX, you can set parameter affine=False.
3. Use seed_all(mode=True) to enable deterministic computing."""
_DETERMINISTIC = """This torch api may be uncertainty in the calculation, \
can seed_all(mode=True) to enable deterministic computing."""
_NOT_DETERMINISTIC = ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")


def _advice(tool: _Tool, rows: Sequence[_Row]) -> str:
    """ptdbg's three lines on the first row that is not accurate. 2.3 passes over batch_norm, and knows less."""
    wrong = ((line, row.a.name) for line, row in enumerate(rows, 2) if row.b is not None and tool.verdict(row) == "No")
    line, name = next((found for found in wrong if not (tool.is_older and "batch_norm" in found[1])), ("NA", "NA"))
    direction = "forward" if "forward" in name else "backward"
    if name == "NA":
        advice = _FINE
    elif not tool.is_older and "Functional_batch_norm" in name and "forward_input.1" in name:
        advice = _BATCH_NORM
    elif "input" in name:
        advice = _FORWARD_INPUT if direction == "forward" else _BACKWARD_INPUT
    else:
        is_known = not tool.is_older and any(api in name for api in _NOT_DETERMINISTIC)
        advice = _DETERMINISTIC if is_known else _OUTPUT.format(direction)
    return f"Line: {line}\nSuspect Nodes: {name}\nExpert Advice: {advice}\n"
