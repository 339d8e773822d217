"""One record of a dump in full, as `pytest-probe show` prints it: plain data for programs, and lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict

from pytest_probe import frameworks, inputs
from pytest_probe.check import Case, preview
from pytest_probe.errors import ProbeError, RecordError
from pytest_probe.model.dump import Call, Dump, Frame, Gradients, Lost, Record, TensorSpec, leaves
from pytest_probe.model.result import plain
from pytest_probe.model.run import BoundCall
from pytest_probe.model.scaled_product import operands
from pytest_probe.numerics.scaled import BlockStatistics
from pytest_probe.records import user_frame
from pytest_probe.registry import Registry
from pytest_probe.standards.tables import classes_of
from pytest_probe.system import archive

# Records before and after that are named.
_NEIGHBOURS = 3
# Facts of a tensor that are shown separately from its statistics.
_NO_STATISTICS = (
    "dtype",
    "shape",
    "data_name",
    "data_key",
    "place",
    "requires_grad",
    "ndarray",
    "stride",
    "address",
    "values",
    "blocks",
    "checksum",
)
_PARTIAL = (
    "only positional arguments were recorded: a replay runs with what gives the stored output, as they stand or with "
    "values for what is missing"
)
_OPERANDS = ("input", "mat2")
_COMPARED = "it is compared with another dump's, and not replayed"
_NODE = "the gradients are those of the last autograd node, which are compared and not replayed"


class Described(Struct, frozen=True):
    """Describes the records of one dump. label is the dump's."""

    dump: Dump
    label: str
    registry: Registry

    @property
    def records(self) -> tuple[Record, ...]:
        """The replayed ones, then the others."""
        return (*self.dump.records, *self.dump.compare_only)

    def record(self, place: int) -> dict[str, Any]:
        """All that the dump has of a record, by its place among the records: text, numbers, lists and objects."""
        dump, replayed = self.dump, place < len(self.dump.records)
        among, place = (dump.records, place) if replayed else (dump.compare_only, place - len(dump.records))
        record = among[place]
        entry = f"{record.name}.{'backward' if record.forward is None else 'forward'}"
        frames = dump.stack(entry)
        troubles: list[str] = []
        call = _tried(lambda: dump.decode(record), troubles) if record.forward is not None else None
        gradients = _tried(lambda: dump.gradients(record), troubles) if record.backward or record.node else {}
        replay = []
        for direction in record.directions if replayed else ():
            skip = preview(Case(dump, record, direction), self.registry)
            verdict, kind, reason = ("run", "", "") if skip is None else ("skip", skip.kind, skip.reason)
            replay.append({"direction": direction, "verdict": verdict, "kind": kind, "reason": reason})
        return {
            "dump": self.label,
            "path": str(dump.path),
            "framework": dump.framework,
            "task": dump.task,
            "level": dump.level,
            "record": record.name,
            "api": f"{record.namespace}.{record.api}",
            "number": record.number,
            "before": [each.name for each in among[max(place - _NEIGHBOURS, 0) : place]],
            "after": [each.name for each in among[place + 1 : place + 1 + _NEIGHBOURS]],
            "called_from": _frame(user_frame(frames)),
            "stack": [_frame(frame) for frame in reversed(frames)],
            "modules": [*reversed(dump.modules(entry))],
            **self._values(call, gradients or {}),
            "blocks": _blocks(dump, record, call) if call is not None else [],
            "replay": replay,
            "notes": [*_notes(call, record), *([] if replayed else [_COMPARED])],
            "troubles": [*dict.fromkeys(troubles)],
        }

    def _values(self, call: Call | None, gradients: Gradients) -> dict[str, list[dict[str, Any]]]:
        inputs = [*leaves(call.args, "input"), *leaves(dict(call.kwargs), "kwargs")] if call is not None else []
        outputs = call.returned() if call is not None else []
        return {
            "arguments": [self._value(name, value, self.dump.data_dirs) for name, value in inputs],
            "outputs": [self._value(name, value, self.dump.data_dirs) for name, value in outputs],
            "gradients": [
                self._value(name, value, self.dump.gradient_dirs or self.dump.data_dirs)
                for name, value in gradients.items()
            ],
        }

    def _value(self, name: str, value: Any, folders: Sequence[Any]) -> dict[str, Any]:
        """One argument, output or gradient: a tensor by dtype, shape and statistics, anything else by its value."""
        if isinstance(value, Lost):
            return {"name": name, "type": "lost", "value": None}
        if not isinstance(value, TensorSpec):
            word = plain(value) if value is None or isinstance(value, bool | int | float | str) else _name(value)
            return {"name": name, "type": type(value).__name__, "value": word}
        found: dict[str, Any] = {"name": name, "type": "array" if value.ndarray else "tensor"}
        found |= {"dtype": value.dtype, "shape": list(value.shape), "requires_grad": value.requires_grad}
        numbers = ((key, number) for key, number in asdict(value).items() if key not in _NO_STATISTICS)
        found |= {key: _number(number) for key, number in numbers if number is not None}
        if value.checksum:
            found["checksum"] = value.checksum
        if value.stride is not None:
            found["stride"] = list(value.stride)
        if value.data_name is not None and folders:
            path = next((each / value.data_name for each in folders if archive.is_file(each / value.data_name)), None)
            found |= {"file": value.data_name, "stored": path is not None}
        return found


def text(found: Mapping[str, Any]) -> Iterator[str]:
    """A described record for people."""
    what = ", ".join(filter(None, (found["framework"], found["task"], found["level"])))
    yield f"{found['dump']}: {found['record']} ({what})"
    place = found["called_from"]
    if place is not None:
        yield f"  called at {place['file']}:{place['line']} in {place['function']}: {place['code']}"
    if found["modules"]:
        yield f"  in modules {' > '.join(found['modules'])}"
    for word in ("before", "after"):
        yield f"  {word}: {', '.join(found[word]) or 'nothing'}"
    for word in ("arguments", "outputs", "gradients"):
        if found[word]:
            yield f"  {word}:"
            yield from _rows(found[word])
    if found["blocks"]:
        yield "  blocks:"
        yield from map(block_line, found["blocks"])
    for each in found["replay"]:
        yield f"  replay {each['direction']}: " + (
            "runs" if each["verdict"] == "run" else f"skip: {each['kind']}: {each['reason']}"
        )
    for word in ("notes", "troubles"):
        yield from (f"  {word.removesuffix('s')}: {each}" for each in found[word])
    if found["stack"]:
        yield "  stack, outermost first:"
        for frame in found["stack"]:
            yield f"    {frame['file']}:{frame['line']} in {frame['function']}"
            yield from (f"      {line}" for line in frame["code"].splitlines())


def _rows(values: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = [each["name"] for each in values]
    kinds = [f"{each['dtype']}{each['shape']}" if "dtype" in each else each["type"] for each in values]
    name_width, kind_width = (min(max(map(len, column)), 40) for column in (names, kinds))
    for each, name, kind in zip(values, names, kinds, strict=True):
        yield f"    {name:<{name_width}}  {kind:<{kind_width}}  {_statistics(each)}".rstrip()


def _statistics(value: Mapping[str, Any]) -> str:
    if "dtype" not in value:
        return "" if value["type"] in ("lost", "NoneType") else str(value["value"])
    left_out = ("name", "type", "dtype", "shape", "requires_grad", "file", "stored")
    words = [f"{key} {number}" for key, number in value.items() if key not in left_out]
    words += ["requires grad"] if value["requires_grad"] else []
    if "file" in value:
        words.append(f"file {value['file']}" + ("" if value["stored"] else " (missing)"))
    return "  ".join(words)


def _notes(call: Call | None, record: Record) -> Iterator[str]:
    if call is not None and call.partial:
        yield _PARTIAL
    if call is not None and call.unrecorded:
        yield call.unrecorded
    if call is not None and call.surroundings is not None:
        under = call.surroundings
        yield from (f"under autocast to {dtype} on {kind}" for kind, dtype in under.autocast.items())
        yield from [f"the default dtype was {under.default}"] if under.default else []
        yield from [] if under.grad else ["without gradients"]
    if record.node is not None:
        yield _NODE


def _tried(read: Callable[[], Any], troubles: list[str]) -> Any:
    try:
        return read()
    except RecordError as error:
        troubles.append(str(error))
        return None


def _frame(frame: Frame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    return {"file": frame.file, "line": frame.line, "function": frame.function, "code": frame.code}


def _number(value: Any) -> Any:
    return [_number(each) for each in value] if isinstance(value, tuple) else plain(value)


def _name(value: Any) -> Any:
    """Of a value that is no tensor, as JSON has it."""
    named = getattr(value, "name", None) or getattr(value, "shape", None)
    return str(value) if named is None else _number(named)


def _blocks(dump: Dump, record: Record, call: Call) -> list[dict[str, Any]]:
    """What the blocks of both operands hold, or of values that a call gave; nothing for any other call, for one whose
    scales are none of its recipe's, which a run says, and where a dump has neither statistics of them nor tensors."""
    signatures, api = frameworks.signatures(dump.framework), f"{record.namespace}.{record.api}"
    found = dict(_recorded_blocks(call.returned()))
    if "short_sums" in classes_of(signatures.canonical(api)):
        bound = signatures.bind(api, call.args, call.kwargs)
        found |= dict(_recorded_blocks([(name, bound.argument(name)) for name in _OPERANDS]))
        found = found or _stored_blocks(dump, record, call, bound)
    return [{"name": name, **asdict(statistics)} for name, statistics in found.items()]


def block_line(found: Mapping[str, Any]) -> str:
    return f"    {found['name']}  {convert({**found}, BlockStatistics).describe()}"


def _recorded_blocks(values: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, BlockStatistics]]:
    for name, value in values:
        if isinstance(value, TensorSpec) and value.blocks is not None:
            yield name, value.blocks


def _stored_blocks(dump: Dump, record: Record, call: Call, bound: BoundCall) -> dict[str, BlockStatistics]:
    """From the tensors of a product of two matrices; nothing where they were not stored."""
    try:
        files = inputs.StoredTensors.of(dump)
        arguments = inputs.build(call, bound=bound, record=record.name, dtype=None, seed=0, kind="stored", files=files)
        both = operands(arguments.bound(bound.api, frameworks.signatures(dump.framework).bind))
    except ProbeError:
        return {}
    return {name: each.blocks() for name, each in zip(_OPERANDS, both, strict=True) if each.matrix.size}
