"""The dumps of ptdbg_ascend 2.3 and 4.0: a .pkl that is text, with the folder of .npy files of the same name.

In: the .pkl. Out: a `Dump` of undecoded records, and each as a `Call` without keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pytest_probe.errors import NoTensors
from pytest_probe.model.dump import Argument, Call, Dump, Gradients, Lost, Number, Record, TensorSpec
from pytest_probe.records import raw_json
from pytest_probe.records.fields import PLAIN, Fields, quoted
from pytest_probe.records.ptdbg.lines import VALUE, SortedLines, Stacks, elements, is_ptdbg, numbered, sort_lines, wrong
from pytest_probe.records.raw_json import ADVICE
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc

# The wrapped namespaces of all releases.
_PREFIXES = ("Functional", "Tensor", "Torch", "VF", "NPU", "Aten", "Distributed")
# Written for a statistic that a tensor does not have; releases differ.
_MISSING: tuple[object, ...] = ([], "Nan")
_STATISTICS = (3, 4)
# Limits for an argument list: its length, and how deep lists are nested in it.
_PLACES, _DEPTH = 20_000, 16
_SUFFIX = ".npy"
# What reads a number of Python's, by the type that a line names.
_SCALARS = {f"<class '{kind}'>": PLAIN[kind] for kind in ("bool", "int", "float")}
# A value by its place in the entry: (1, 0) for "input.1.0".
_Place = tuple[int, ...]


def decode(path: Path, record: Record) -> Call:
    """The call that the forward lines of a record describe, as far as they do.

    Raises RecordError for what cannot be understood, NoTensors where the dump has only its stack.
    """
    entry = _Entry(path, record, "forward")
    if record.namespace not in _PREFIXES:
        line = next((number for number, _ in numbered(record.forward or b"")), 0)
        found = f"the prefix {record.namespace} in {entry.stem}"
        raise entry.error(f"line {line}" if line else "", found, f"one of {', '.join(_PREFIXES)}")
    if not record.forward:
        raise NoTensors(path, entry.name, "", "its stack alone: the dump holds no tensors", "lines with its arguments")
    values = entry.values(record.forward)
    inputs = {place: value for (part, place), value in values.items() if part == "input"}
    outputs = {place: value for (part, place), value in values.items() if part == "output"}
    args = entry.nested(inputs, "input", Lost)
    if () in inputs:
        raise entry.error(entry.origin["input", ()], "input without a number", "input.0")
    if () in outputs and len(outputs) > 1:
        place = next(place for place in outputs if place)
        raise entry.error(entry.origin["output", place], "one output and several", "one of both")
    returned = [outputs[()]] if () in outputs else entry.nested(outputs, "output", lambda: None)
    return Call(tuple(args), {}, tuple(returned) or None, None, partial=True)


def gradients(path: Path, record: Record) -> Gradients:
    """The gradients at the last autograd node of a call, by name. Raises RecordError."""
    if not record.node:
        return {}
    entry = _Entry(path, record, "backward")
    found = entry.values(record.node)
    named = {".".join((part, *map(str, place))): value for (part, place), value in found.items()}
    return {name: value if isinstance(value, TensorSpec) else None for name, value in named.items()}


class _Entry(Fields):
    """Reads the lines of one direction of a call; origin has the line of each value, for messages."""

    def __init__(self, path: Path, record: Record, direction: str) -> None:
        super().__init__(path, f"{record.name}.{direction}")
        self.stem = f"{record.namespace}_{record.api}_{record.number}_{direction}"
        self.origin: dict[tuple[str, _Place], str] = {}

    def values(self, raw: bytes) -> dict[tuple[str, _Place], Argument]:
        """The values of an entry by part ("input", "output") and place; the last one of a name counts."""
        found: dict[tuple[str, _Place], Argument] = {}
        for number, line in numbered(raw):
            items = elements(line)
            if items is None or len(items) != VALUE:
                raise self.error(f"line {number}", *wrong(line))
            part, place = self.place(items[0], f"line {number}")
            self.origin[part, place] = f"line {number}"
            found[part, place] = self.value(items, f"line {number}")
        return found

    def place(self, name: Any, line: str) -> tuple[str, _Place]:
        """What follows the call's name: "input.1.0" is the first element of the second argument."""
        text = name.removeprefix(f"{self.stem}_") if isinstance(name, str) else ""
        part, *numbers = text.split(".")
        whole = all(number.isdecimal() and number.isascii() and len(number) < 10 for number in numbers)
        if part not in ("input", "output") or not whole or (name == text):
            raise self.error(line, quoted(name), f"a name as {self.stem}_input.0")
        place = tuple(map(int, numbers))
        if len(place) > _DEPTH or any(number >= _PLACES for number in place):
            raise self.error(line, quoted(name), f"numbers below {_PLACES:,}, and at most {_DEPTH} of them")
        return part, place

    def value(self, items: list[Any], line: str) -> Argument:
        name, _, _, dtype, shape, summary = items
        if not isinstance(dtype, str):
            raise self.error(line, quoted(dtype), "the name of a dtype")
        if not isinstance(summary, list) or len(summary) not in _STATISTICS:
            raise self.error(line, quoted(summary), "a list of three or four statistics")
        if dtype.startswith("<class "):
            # A Python number, which the line repeats for each statistic.
            read = _SCALARS.get(dtype)
            if read is None:
                raise self.no_place(f"{line}, {name}", quoted(dtype))
            return read(self, {"value": summary[0]}, f"{line}, {name}")
        return self.tensor(name, self.dtype_named(dtype, f"{line}, {name}"), shape, summary, line)

    def tensor(self, name: str, dtype: str, shape: Any, summary: list[Any], line: str) -> TensorSpec:
        field = f"{line}, {name}"
        statistics = [None if value in _MISSING else self.number({"0": value}, "0", field) for value in summary]
        top, bottom, mean, norm = (*statistics, None)[:4]
        whole = "int" in dtype
        return TensorSpec(
            dtype,
            self.tensor_shape({"shape": shape}, field),
            max=_whole(top) if whole else top,
            min=_whole(bottom) if whole else bottom,
            mean=None if mean is None else float(mean),
            norm=None if norm is None else float(norm),
            data_name=self.file_name({"data_name": f"{name}{_SUFFIX}"}, "data_name", field),
            place=line,
        )

    def nested(self, values: Mapping[_Place, Argument], part: str, missing: Callable[[], Argument]) -> list[Argument]:
        """The values of a part as nested lists, with `missing` in the gaps. Raises RecordError where one place has a
        value and a list."""
        tree: dict[int, Any] = {}
        for place, value in sorted(values.items()):
            node = tree
            for number in place[:-1]:
                node = node.setdefault(number, {})
                if not isinstance(node, dict):
                    raise self.error(
                        self.origin[part, place], f"{part}.{'.'.join(map(str, place))} in a value", "a list"
                    )
            if place:
                node[place[-1]] = value
        return _as_list(tree, missing)


def _as_list(tree: Mapping[int, Any], missing: Callable[[], Argument]) -> list[Argument]:
    if not tree:
        return []
    present = (tree.get(number, missing) for number in range(max(tree) + 1))
    return [
        _as_list(item, missing) if isinstance(item, dict) else missing() if item is missing else item
        for item in present
    ]


def _whole(number: Number | None) -> Number | None:
    """Statistics of integers were computed in float32."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


# Broken lines that a message lists.
_LISTED = 10
_NODES = "backward entries, of the last autograd node: compared and not replayed"
# Records that are searched for the release.
_RECORDS_FOR_VERSION = 100
# Releases by the number of statistics in a line.
_VERSIONS = {3: "ptdbg 2.3", 4: "ptdbg 4"}


class PtdbgReader:
    """Reads what ptdbg_ascend 2.3 and 4.0 write. Lines stay as they are until their record is decoded."""

    name = "ptdbg"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Is there a line as ["Torch_relu_0_forward_input.0", ...]?"""
        return is_ptdbg(head)

    def read(self, path: Path) -> Dump:
        """Read the dump. A line that belongs to no record is damage."""
        with paused_gc(), archive.open_file(path) as file:
            found = sort_lines(raw_json.without_mark(file.read()))
            records = tuple(_records(found))
        folder = path.with_suffix("")
        stored = archive.is_folder(folder)
        nodes = sum(record.node is not None for record in records)
        damage: tuple[str, ...] = ()
        if found.broken:
            more = len(found.broken) - _LISTED
            listed = "; ".join(found.broken[:_LISTED]) + (f"; and {more:,} more such lines" if more > 0 else "")
            damage = (f"{path}: {listed}; records kept: {len(records):,}; {ADVICE}",)
        return Dump(
            path=path,
            framework="pytorch",
            task="tensor" if stored else "statistics",
            level="",
            records=records,
            decode=partial(decode, path),
            stack=Stacks({call.name: call.entries for call in found.calls.values()} if found.stacks else {}),
            data_dirs=(folder,) if stored else (),
            notes=tuple(_notes(found, records)),
            damage=damage,
            skipped={_NODES: nodes} if nodes else {},
            fields={"input": "input", "kwargs": "kwargs", "grad": "input"},
            observed=partial(gradients, path),
        )


def _records(found: SortedLines) -> Iterator[Record]:
    for call in found.calls.values():
        forward, backward = call.entries.get("forward"), call.entries.get("backward")
        # A call with only a stack has an entry without values.
        raw, node = (None if entry is None else entry.raw for entry in (forward, backward))
        yield Record(call.name, call.namespace, call.api, call.number, raw, node=node)


def _notes(found: SortedLines, records: tuple[Record, ...]) -> Iterator[str]:
    forward = sum(record.forward is not None for record in records)
    backward = sum(record.node is not None for record in records)
    lines = f"{found.values:,} lines of values, {found.stacks:,} of stacks"
    # The releases differ in the number of statistics, which the first line of an entry tells.
    raws = (record.forward or record.node for record in records[:_RECORDS_FOR_VERSION])
    firsts = (elements(next(numbered(raw))[1]) for raw in raws if raw)
    statistics = (line[5] for line in firsts if line is not None and len(line) == VALUE and isinstance(line[5], list))
    known = sorted({_VERSIONS[len(each)] for each in statistics if len(each) in _VERSIONS})
    version = known[0] if len(known) == 1 else "ptdbg"
    yield f"{version}, {forward + backward:,} entries: {forward:,} forward, {backward:,} backward; {lines}"
    if not found.values:
        yield "holds no tensors: all its lines are stacks"
    for name, count in found.repeated.items():
        yield f"{name} occurs {count} times, the last one counts"
