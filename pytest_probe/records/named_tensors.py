"""Files of many named tensors: of safetensors, and dictionaries that torch.save wrote, as debug hooks do at each step.

In: the file. Out: a `Dump` whose records are all compared with another dump's and never replayed, since a name tells of
no API: what stands before `.input.0`, `.output` or `.grad` names the record, and a name without such a part is that of
its output.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from pytest_probe.errors import DumpError
from pytest_probe.model.dump import TENSOR_FOLDER, Argument, Call, Dump, Gradients, Lost, Record, TensorSpec, no_frames
from pytest_probe.records.labels import natural_order
from pytest_probe.records.raw_json import ADVICE
from pytest_probe.system import archive
from pytest_probe.system.tensor_files import StoredTensor, stored_tensors
from pytest_probe.system.tensor_files.safetensors import is_safetensors
from pytest_probe.system.tensor_files.torch_zip import is_dictionary
from pytest_probe.system.text import printable_line

# Damaged tensors, and values that are no tensors, that a message lists.
_LISTED = 10
_COMPARED = "entries of named tensors: compared and not replayed"
LEVEL = "named tensors"
# The end of a name: what of a call it is, and its place there. Four digits keep a list short.
_END = re.compile(
    r"(?P<name>.+)\.(?:(?P<part>input|output|grad_input|grad_output|grad)(?:s|_args)?"
    r"(?P<place>(?:[._]?\d{1,4})?(?:\.\d{1,4})*)|(?:input_)?kwargs\.(?P<key>[^.]+))",
    re.DOTALL,
)
# A call's entry: msprobe's have the direction behind the number, those of modules before it.
_CALL = re.compile(
    r"(?P<stem>.+)\.(?:(?P<number>\d{1,18})\.(?P<direction>forward|backward)|(?P<way>forward|backward)\.(?P<count>\d{1,18}))",
    re.DOTALL,
)
_OF_BACKWARD = {"input": "grad_output", "output": "grad_input"}
_MODULE = "Module"


class _Named(Struct, frozen=True):
    """A tensor of a record, by the part of the call that it is and its place there ("1.0"). Parts are input, output,
    kwargs, grad_output (a gradient that came in) and grad_input (one that went out)."""

    part: str
    place: str
    spec: TensorSpec


class NamedTensorsReader:
    """Reads a file of named tensors; which kind, its beginning says. in_order: the file has the program's order."""

    def __init__(self, name: str, begins: Callable[[bytes], bool], *, in_order: bool) -> None:
        self.name = name
        self._begins = begins
        self._in_order = in_order

    def sniff(self, path: Path, head: bytes) -> bool:
        """Does the file begin so, and is it none of the tensor files of a dump?"""
        return self._begins(head) and TENSOR_FOLDER not in path.parent.parts[-1:]

    def read(self, path: Path) -> Dump:
        """Read the dump. A tensor that cannot be had is damage. Raises DumpError without one at all."""
        if archive.split(path) is not None or archive.kind(path):
            raise DumpError(path, "is packed, and its tensors are read where they lie", "unpack it")
        try:
            found = stored_tensors(path)
        except ValueError as error:
            raise DumpError(path, f"cannot be read: {error}", ADVICE) from None
        order = found.tensors if self._in_order else sorted(found.tensors, key=lambda name: natural_order(Path(name)))
        records = tuple(_records(path.name, {name: found.tensors[name] for name in order}))
        lost = (f"{path}: {_listed(found.damage)}; tensors kept: {len(found.tensors):,}",) if found.damage else ()
        note = f"left out, since they are no tensors: {_listed(found.others)}"
        return Dump(
            path=path,
            framework="pytorch",
            task="tensor",
            level=LEVEL,
            records=(),
            compare_only=records,
            decode=_decode,
            observed=_gradients,
            stack=no_frames,
            data_dirs=(path.parent,),
            notes=(note,) if found.others else (),
            damage=lost,
            skipped={_COMPARED: len(records)} if records else {},
        )


# safetensors sorts tensors by the width of their dtypes.
READERS = (
    NamedTensorsReader("safetensors", is_safetensors, in_order=False),
    NamedTensorsReader("torch", is_dictionary, in_order=True),
)


def _listed(texts: tuple[str, ...]) -> str:
    more = len(texts) - _LISTED
    return "; ".join(map(printable_line, texts[:_LISTED])) + (f"; and {more:,} more" if more > 0 else "")


def _records(file: str, tensors: Mapping[str, StoredTensor]) -> Iterator[Record]:
    """The records in the order of their first tensors."""
    calls: defaultdict[tuple[str, str, str, int], list[_Named]] = defaultdict(list)
    for key, tensor in tensors.items():
        call, part, place = _split(key)
        spec = TensorSpec(tensor.dtype, tensor.shape, data_name=file, data_key=key)
        calls[call].append(_Named(part, place, spec))
    for (name, namespace, api, number), found in calls.items():
        forward, backward = ([each for each in found if each.part.startswith("grad") == is_grad] for is_grad in (0, 1))
        name, namespace, api = map(printable_line, (name, namespace, api))
        yield Record(name, namespace, api, number, tuple(forward) or None, tuple(backward) or None)


def _split(key: str) -> tuple[tuple[str, str, str, int], str, str]:
    """The call that a tensor belongs to (name, namespace, API and number), what of it the tensor is, and its place."""
    end = _END.fullmatch(key)
    name = end["name"] if end else key
    part, place = (end["part"] or "kwargs", end["key"] or end["place"].lstrip("._")) if end else ("output", "")
    part = "grad_output" if part == "grad" else part
    call = _CALL.fullmatch(name)
    if call is None:
        return (name, _MODULE, name, 0), part, place or "0"
    stem, number = call["stem"], call["number"] or call["count"]
    if (call["direction"] or call["way"]) == "backward":
        part = _OF_BACKWARD.get(part, part)
    namespace, _, api = stem.partition(".")
    name = f"{stem}.{number}"
    whole = (name, namespace, api, int(number)) if api and namespace[0].isupper() else (name, _MODULE, name, 0)
    return whole, part, place or "0"


def _decode(record: Record) -> Call:
    outgoing = _part(record, "grad_input") or None
    incoming = None if record.backward is None else _positional(_part(record, "grad_output"), lambda: None)
    gradients = incoming and tuple(each if isinstance(each, TensorSpec) else None for each in incoming)
    outputs = _positional(_part(record, "output"), lambda: None) or None
    return Call(
        _positional(_part(record, "input"), Lost), _part(record, "kwargs"), outputs, gradients, outgoing=outgoing
    )


def _gradients(record: Record) -> Gradients:
    came, went = _part(record, "grad_output"), _part(record, "grad_input")
    return {
        f"{half}.{place}": spec for half, part in (("input", came), ("output", went)) for place, spec in part.items()
    }


def _part(record: Record, part: str) -> dict[str, TensorSpec]:
    """The tensors of a part of the call, by their places."""
    found: tuple[_Named, ...] = (*(record.forward or ()), *(record.backward or ()))
    return {each.place: each.spec for each in found if each.part == part}


def _positional(values: Mapping[str, TensorSpec], missing: Callable[[], Argument]) -> tuple[Argument, ...]:
    """A list of values by their places; what lies in an element of the list is in a dictionary there."""
    elements: defaultdict[int, dict[str, TensorSpec]] = defaultdict(dict)
    for place, spec in values.items():
        first, _, rest = place.partition(".")
        elements[int(first)][rest] = spec
    found = (elements.get(number) for number in range(max(elements, default=-1) + 1))
    return tuple(
        missing() if each is None else each.get("") if len(each) == 1 and "" in each else each for each in found
    )
