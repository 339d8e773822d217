"""The tables that ptdbg_ascend 2.3 and 4.0 and msprobe 1.0.4 write of two dumps, in their columns, and ptdbg's advice.

Values are read where an item runs, and files are written where all results are, maybe in another process. So a result
carries its rows: nothing is read twice in a process that has other work, and results.jsonl has the tables as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import RecordError
from pytest_probe.features.against.sides import TENSORS, Side, Tensor
from pytest_probe.features.against.tool_columns import NO_BENCH, Columns, accuracy, msprobe, newer, older
from pytest_probe.model.dump import Frame
from pytest_probe.model.pairing import Paired, TableRow, TableTensor
from pytest_probe.model.result import Result, number, plain
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.reports.tables import folder_of, write_rows
from pytest_probe.system.files import write_whole

_LINE = re.compile(r"line (\d+)")
# What dtypes begin with, by the name of a framework.
_PREFIXES = {"pytorch": "torch"}
_NUMBER = "<class"


def line_of(side: Side) -> int:
    """Where a dump tells of a call; 0 where its format has no lines."""
    places = (value.spec.place for _, value in _shown(side) if isinstance(value, Tensor))
    found = _LINE.fullmatch(next(places, ""))
    return int(found[1]) if found else 0


def rows_of(a: Side, b: Side | None, equal: Set[str] = frozenset()) -> Iterator[TableRow]:
    """Of each tensor and number of A: what came in, and what went out. b: None where B has no such call; equal: the
    names of tensors whose values are known to be equal."""
    other = {} if b is None else dict(_shown(b))
    for name, value in _shown(a):
        one = _described(a, name, value)
        if b is None or name not in other:
            yield TableRow(one)
            continue
        row = TableRow(one, _described(b, name, other[name]))
        is_known = [not isinstance(each, TENSORS) or each.has_values for each in (value, other[name])]
        yield _measured(row, (a, value), (b, value if name in equal else other[name])) if any(is_known) else row


def _shown(side: Side) -> Iterator[tuple[str, Any]]:
    """The values of one direction alone: a backward has the inputs of its forward as well."""
    for name, value in (*side.inputs.items(), *side.outputs.items()):
        forward = not name.startswith(("incoming.", "grad."))
        if forward == (side.direction == "forward") and isinstance(value, (*TENSORS, bool, int, float)):
            yield name, value


def _described(side: Side, name: str, value: Any) -> TableTensor:
    is_tensor = isinstance(value, TENSORS)
    if side.direction == "forward":
        # msprobe counts the values of a keyword argument from 0.
        place = re.sub(r"^kwargs\.(\w+)$", r"input.\1.0", name).replace("kwargs.", "input.", 1)
    else:
        place = value.field if isinstance(value, Tensor) else name.replace("incoming.", "input.", 1)
    entry = side.entry.replace(".", "_")
    alone = place == "output.0" and sum(each.startswith("output") for each in side.outputs) == 1
    known = f"{entry}_{'output' if alone else place}"
    if not is_tensor:
        return TableTensor(
            known, f"{side.entry}.{place}", f"{_NUMBER} '{type(value).__name__}'>", (), (plain(value),) * 4
        )
    spec = value.spec
    file = spec.data_name or ""
    if file.startswith(f"{entry}_"):
        known = file.removesuffix(".npy")
    dtype = f"{_PREFIXES.get(side.dump.framework, side.dump.framework)}.{spec.dtype}"
    statistics = tuple(map(plain, (spec.max, spec.min, spec.mean, spec.norm)))
    return TableTensor(known, f"{side.entry}.{place}", dtype, spec.shape, statistics, file)


def _measured(row: TableRow, a: tuple[Side, Any], b: tuple[Side, Any]) -> TableRow:
    one = _array(a[1])
    other = one if b[1] is a[1] else _array(b[1])
    if one is None or other is None:
        (side, _), tensor = (a, row.a) if one is None else (b, row.b)
        return _lost(row, str(next(iter(side.dump.data_dirs), side.dump.path.parent) / _file_of(tensor)))
    renamed = row.b is not None and row.a.name != row.b.name
    found = replace(row, ptdbg_23=older(one, other), ptdbg_40=newer(one, other, renamed=renamed))
    # msprobe keeps no files of numbers, and compares none.
    return found if _is_number(row.a) else replace(found, msprobe=msprobe(one, other, renamed=renamed))


def _array(value: Any) -> AnyArray | None:
    """None where it cannot be read."""
    try:
        if isinstance(value, TENSORS):
            return value.array()
        return np.asarray(float(value) if abs(value) >= 2**63 else value)
    except RecordError:
        return None


def _file_of(tensor: TableTensor | None) -> str:
    return "" if tensor is None else tensor.file or f"{tensor.name}.npy"


def _lost(row: TableRow, file: str) -> TableRow:
    """A row of values that cannot be read."""
    message = f"Dump file: {file} not found."
    return replace(
        row,
        ptdbg_23=("Nan", "Nan", f"Dump file:{file} not found"),
        ptdbg_40=(*("Nan",) * 5, message),
        msprobe=(*("None",) * 5, message),
    )


def _is_number(tensor: TableTensor) -> bool:
    return tensor.dtype.startswith(_NUMBER)


_Cells: TypeAlias = list[Any]
_Stack: TypeAlias = Callable[[str], tuple[Frame, ...]]
_SIDES = ("NPU", "Bench")
_METRICS = ("Cosine", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")
_STATISTICS = ("max", "min", "mean", "l2norm")
_DIFFERENCES = tuple(f"{name.capitalize()} diff" for name in _STATISTICS)
_RELATIVE = tuple(f"{name}RelativeErr" for name in ("Max", "Min", "Mean", "Norm"))
_VERDICT, _MESSAGE, _STACK = "Accuracy Reached or Not", "Err_message", "NPU_Stack_Info"
_CHECK = "Need double check api accuracy."
# Dtypes in whose place 4.0 and msprobe take each other.
_EXCHANGED = ({"float16", "float32"}, {"float16", "bfloat16"})


class _Tool(Struct, frozen=True):
    """How a tool writes its table. columns is the field of a row with what it prints; dtype is what it calls a dtype,
    unknown what it writes of a side that has no such tensor, none of a metric that tells nothing."""

    columns: str
    metrics: int = 5
    statistics: int = 4
    dtype: str = "Tensor Dtype"
    unknown: str = "Nan"
    none: str = "Nan"

    @property
    def is_ptdbg(self) -> bool:
        return self.columns != "msprobe"

    @property
    def is_older(self) -> bool:
        return self.columns == "ptdbg_23"

    def header(self, by_values: bool) -> _Cells:
        sides = [f"{side} {what}" for what in ("Name", self.dtype, "Tensor Shape") for side in _SIDES]
        statistics = [f"{side} {name}" for side in _SIDES for name in _STATISTICS[: self.statistics]]
        if by_values:
            last = [] if self.is_ptdbg else ["Data_name"]
            return [*sides, *_METRICS[: self.metrics], *statistics, _VERDICT, _MESSAGE, *last]
        if self.is_ptdbg:
            return [*sides, *_DIFFERENCES, *statistics]
        return [*sides, *_DIFFERENCES, *_RELATIVE, *statistics, "Result", _MESSAGE]

    def cells(self, row: TableRow, b: TableTensor | None, by_values: bool) -> _Cells:
        """A row; b: None where the tool matches nothing with it."""
        a = row.a
        names = (a.name, b and b.name) if self.is_ptdbg else (a.place, b and b.place)
        shapes = (list(a.shape), b and list(b.shape))
        known = [self.unknown if b is None else cell for cell in (names[1], b and b.dtype, shapes[1])]
        first = [cell for both in zip((names[0], a.dtype, shapes[0]), known, strict=True) for cell in both]
        other = [self.unknown] * self.statistics if b is None else self.shown(b)
        statistics = [*self.shown(a), *other]
        if not by_values:
            return [*first, *self.compared(a, b, statistics)]
        columns = self.printed(row) if b is not None else (*(self.none,) * self.metrics, NO_BENCH)
        last = [] if self.is_ptdbg else [a.file if b is not None and a.file else "-1"]
        return [*first, *columns[:-1], *statistics, self.verdict(columns), columns[-1], *last]

    def verdict(self, columns: Columns) -> str:
        return accuracy(columns, is_older=self.is_older, none=self.none)

    def printed(self, row: TableRow) -> Columns:
        found: Columns = getattr(row, self.columns)
        if found:
            return found
        return (
            (*(self.none,) * self.metrics, NO_BENCH) if not self.is_ptdbg else self.printed(_lost(row, _file_of(row.a)))
        )

    def shown(self, tensor: TableTensor) -> _Cells:
        """Statistics; ptdbg's of integers were computed in float32."""
        whole = "int" in tensor.dtype and not _is_number(tensor)
        missing = ("[]", "[]", "[]", "Nan") if self.is_ptdbg else ("",) * 4
        found = []
        for value, blank in zip(tensor.statistics[: self.statistics], missing, strict=False):
            known = number(value) if isinstance(value, str) else value
            found.append(blank if known is None else float(known) if self.is_ptdbg and whole else known)
        return found

    def compared(self, a: TableTensor, b: TableTensor | None, statistics: _Cells) -> _Cells:
        """What follows in a table of statistics alone."""
        half = len(statistics) // 2
        pairs = list(zip(statistics[:half], statistics[half:], strict=True))
        if self.is_ptdbg:
            return [*(_difference(one, other, "Nan") for one, other in pairs), *statistics]
        if b is None:
            return [*("N/A",) * 8, *statistics, "N/A", NO_BENCH]
        warned = any(_differ(one, other) for one, other in pairs)
        differences = [_difference(one, other, "None") for one, other in pairs]
        relative = [_relative(one, other) for one, other in pairs]
        return [*differences, *relative, *statistics, "Warning" if warned else "", _CHECK if warned else ""]


_TOOLS = {
    "compare_result_ptdbg_2.3.csv": _Tool("ptdbg_23", metrics=2, statistics=3),
    "compare_result_ptdbg_4.0.csv": _Tool("ptdbg_40"),
    "compare_result_msprobe.csv": _Tool("msprobe", dtype="Dtype", unknown="N/A", none="None"),
}


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _difference(one: Any, other: Any, none: str) -> Any:
    return one - other if _are_numbers(one, other) else none


def _relative(one: Any, other: Any) -> str:
    if not _are_numbers(one, other):
        return " "
    return "N/A" if other == 0 else f"{abs((one - other) / other * 100)}%"


def _differ(one: Any, other: Any) -> bool:
    return _are_numbers(one, other) and abs(one - other) / (max(abs(one), abs(other)) + 1e-10) > 0.5


def write_tables(folder: Path, stacks: Mapping[str, _Stack], advice_of: str) -> Iterator[Path]:
    """The files of the results in a folder; a dump has its own, in a folder below where there are several. stacks gives
    the frames of A's entries, by the label of the dump. advice_of: the tool whose table advisor.txt speaks of."""
    calls: dict[str, list[_Call]] = {}
    for result in read_results(folder / RESULTS):
        if result.against is not None and result.against.rows:
            calls.setdefault(result.portable_id.label, []).append(_Call.of(result, result.against))
    for label, of_dump in calls.items():
        below = folder if len(calls) == 1 else folder_of(folder, label)
        below.mkdir(parents=True, exist_ok=True)
        yield from _written(below, sorted(of_dump, key=lambda call: call.order), stacks[label], advice_of)


class _Call(Struct, frozen=True):
    """The rows of an entry. order is that in A's dump: by its lines, else forwards, then backwards in reverse; only
    dumps in lines, as ptdbg's, have stacks because their user wanted them in the table."""

    entry: str
    order: tuple[bool, int]
    has_stack: bool
    rows: tuple[TableRow, ...]

    @classmethod
    def of(cls, result: Result, paired: Paired) -> _Call:
        backward, line, place = result.direction == "backward", paired.dump_line, result.place or 0
        order = (False, line) if line else (backward, -place if backward else place)
        return cls(result.portable_id.entry, order, bool(line), paired.rows)


def _written(folder: Path, calls: Sequence[_Call], stack: _Stack, advice_of: str) -> Iterator[Path]:
    by_values = any(row.ptdbg_40 and not _is_number(row.a) for call in calls for row in call.rows)
    for name, tool in _TOOLS.items():
        if tool.is_older and not by_values:
            continue
        yield write_rows(folder / name, _table(tool, calls, by_values, stack), encoding="utf-8")
        if tool.columns == advice_of and by_values:
            write_whole(folder / "advisor.txt", _advice(tool, calls).encode())
            yield folder / "advisor.txt"


def _table(tool: _Tool, calls: Sequence[_Call], by_values: bool, stack: _Stack) -> Iterator[_Cells]:
    """The header and all rows. ptdbg's have a stack in the first row of each call, where a dump has stacks."""
    stacks = tool.is_ptdbg and any(call.has_stack and stack(call.entry) for call in calls)
    yield [*tool.header(by_values), *([_STACK] if stacks else [])]
    for call in calls:
        frames = stack(call.entry) if stacks else ()
        text = str([[frame.file, str(frame.line), frame.function, frame.code] for frame in frames]) if frames else ""
        for place, (row, b) in enumerate(_matched(tool, call)):
            # A table of pandas has nothing for NaN.
            cells = ["" if cell != cell else cell for cell in tool.cells(row, b, by_values)]
            yield [*cells, *([text if place == 0 else ""] if stacks else [])]


def _matched(tool: _Tool, call: _Call) -> Iterator[tuple[TableRow, TableTensor | None]]:
    """The rows of a call, each with what the tool takes for its counterpart: for all but the older ones shapes and
    dtypes count."""
    matched = all(row.b is not None and (tool.is_older or _are_alike(row.a, row.b)) for row in call.rows)
    return ((row, row.b if matched else None) for row in call.rows)


def _are_alike(a: TableTensor, b: TableTensor) -> bool:
    dtypes = {each.dtype.rpartition(".")[2] for each in (a, b)}
    return a.shape == b.shape and (len(dtypes) == 1 or dtypes in _EXCHANGED)


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


def _advice(tool: _Tool, calls: Sequence[_Call]) -> str:
    """ptdbg's three lines on the first row that is not accurate. 2.3 passes over batch_norm."""
    rows = enumerate((pair for call in calls for pair in _matched(tool, call)), 2)
    wrong = ((line, row.a.name) for line, (row, b) in rows if b is not None and tool.verdict(tool.printed(row)) == "No")
    line, name = next((found for found in wrong if not (tool.is_older and "batch_norm" in found[1])), ("NA", "NA"))
    advice = _FINE if name == "NA" else _suggestion(name, is_older=tool.is_older)
    return f"Line: {line}\nSuspect Nodes: {name}\nExpert Advice: {advice}\n"


def _suggestion(name: str, *, is_older: bool) -> str:
    direction = "forward" if "forward" in name else "backward"
    if not is_older and "Functional_batch_norm" in name and "forward_input.1" in name:
        return _BATCH_NORM
    if "input" in name:
        return _FORWARD_INPUT if direction == "forward" else _BACKWARD_INPUT
    is_known = not is_older and any(api in name for api in _NOT_DETERMINISTIC)
    return _DETERMINISTIC if is_known else _OUTPUT.format(direction)
