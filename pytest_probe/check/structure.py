"""Outputs of both sides in pairs, and what differs in structure: numbers, names, shapes, dtypes, arguments that were
changed; of a caller's outputs device and strides as well.

The reference promises a caller's structure by what it returns on the same arguments in their own dtypes. That is found
from shapes and dtypes first; where the outputs are otherwise, the reference runs on the device under test, and then on
the CPU. An output that is as any of these say is as promised, since kernels differ between devices, and what the user
has set counts on one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, Reference
from pytest_probe.check.device_memory import noting_device_memory
from pytest_probe.check.prepare import narrow_dtype
from pytest_probe.errors import NoReference
from pytest_probe.inputs.memory import contiguous_strides
from pytest_probe.model.case import Demands
from pytest_probe.model.device_arrays import DeviceArray, lying
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.model.run import Device, Layout, Run, floats_of
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.arrays import distance, reference_array, same_bytes, widened_dtype
from pytest_probe.numerics.dtypes import AnyArray, dtype_name, is_floating, is_inexact, numpy_dtype
from pytest_probe.user_errors import allowing_refusal

if TYPE_CHECKING:
    from pytest_probe.check.engines import Engines
    from pytest_probe.check.large.pieces import Sampled
    from pytest_probe.check.large.sampler import Sample


class OutputPairs(Struct, frozen=True):
    """What both sides gave in one direction, by name, and verdicts on what differs in structure; sample tells that it
    is part of one tensor, other_reading is the same in a reading of the record that the device is farther from."""

    replay: BothSides
    actual: Mapping[str, Any]
    expected: Mapping[str, Any]
    structural: tuple[OutputVerdict, ...]
    sample: Sample | Sampled | None = None
    other_reading: OutputPairs | None = None


class PairedOutputs(Struct, frozen=True):
    """All that the source gave in one direction, and what the reference gave: in one piece, or in samples."""

    replay: BothSides
    actual: Mapping[str, Any]
    sides: tuple[OutputPairs, ...]

    @classmethod
    def of(cls, *sides: OutputPairs) -> PairedOutputs:
        """One or several pieces, none of them a sample."""
        actual = {name: value for each in sides for name, value in each.actual.items()}
        return cls(sides[0].replay, actual, sides)


def named_gradients(gradients: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Gradients by the names that reports give them."""
    return {f"grad.{name}": value for name, value in gradients.items()}


def nearest_structure(sides: list[OutputPairs]) -> OutputPairs:
    """Of the readings of a record the one that the device's results are nearest to, with the other one in it: after an
    error that one is judged as well."""
    nearest, *others = sorted(sides, key=lambda item: distance(item.actual, item.expected)) if sides[1:] else sides
    return replace(nearest, other_reading=others[0]) if others else nearest


def backward_sides(replay: BothSides, actual: Mapping[str, Any], expected: Mapping[str, Any]) -> OutputPairs:
    """Gradients of both sides, with verdicts on outputs that only the reference can differentiate, of several, and on
    gradients that only one side gives."""
    broken = []
    for name in sorted(set(replay.reference.run.differentiable) - set(replay.actual.differentiable)):
        output = replay.actual.outputs.get(name)
        if isinstance(output, np.ndarray):
            broken.append(structure_error(name, output, "the device's output has no gradient, the reference's does"))
    for name in sorted(actual.keys() ^ expected.keys()):
        gradient = actual[name] if name in actual else expected[name]
        reason = "the device gives a gradient, the reference none" if name in actual else "the device gives no gradient"
        # A gradient of zeros is as good as none.
        if np.any(gradient):
            broken.append(structure_error(name, gradient, reason))
    return OutputPairs(replay, actual, expected, tuple(broken))


def structure_error(name: str, value: Any, reason: str) -> OutputVerdict:
    """The verdict on an output, or a gradient, that is not as it must be, whatever its numbers are."""
    dtype = dtype_name(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__
    return OutputVerdict(name, np.shape(value), dtype, "error", "structure", reason)


def forward_sides(replay: BothSides) -> OutputPairs:
    """Return values and changed arguments of both sides."""
    changed = tuple(changed_on_device_alone(replay))
    written = frozenset(name for name in changed if replay.reference.writes(name))
    if written:
        # They count as changed, though they are as they were.
        run = replay.reference.run
        replay = replace(replay, reference=replace(replay.reference, run=replace(run, changed=run.changed | written)))
    reference = replay.reference
    actual, expected = dict(replay.actual.outputs), dict(reference.run.outputs)
    beside = sorted(changed_and_not_returned(replay))
    # A dump has arguments as they were before the call.
    if beside and not replay.source.tells_changes:
        words = f"not judged, because a dump does not store what the call wrote there: {', '.join(beside)}"
        replay, beside = replay.noted(words), []
    for name in beside:
        # A run that was kept has no values of what it left as it was.
        before = reference_array(reference.leaves[name].array) if name in written else None
        expected[name] = reference.run.after(name) if before is None else before
        actual[name] = replay.actual.after(name)
    troubles = []
    for name in sorted(actual.keys() ^ expected.keys()):
        present = actual.get(name, expected.get(name))
        reason = "the device does not return this"
        if expected.get(name) is None:
            reason = "the device returns this, the reference does not"
        troubles.append(structure_error(name, present, reason))
    alone = (name for name in changed if name not in written)
    return OutputPairs(replay, actual, expected, (*troubles, *_mutated(replay, alone)))


def changed_and_not_returned(replay: BothSides) -> frozenset[str]:
    """The arguments that the reference changes, except arguments that both sides return: they are judged once, as
    outputs."""
    returned = replay.actual.returned.items() & replay.reference.run.returned.items()
    return replay.reference.changed - {argument for _, argument in returned}


def changed_arguments(replay: BothSides) -> Iterator[OutputVerdict]:
    """Verdicts on arguments that only the device changed."""
    return _mutated(replay, changed_on_device_alone(replay))


def _mutated(replay: BothSides, names: Iterable[str]) -> Iterator[OutputVerdict]:
    for name in names:
        array = replay.reference.leaves[name].array
        reason = "the device changed this argument; the reference does not change it"
        yield OutputVerdict(name, array.shape, dtype_name(array.dtype), "error", "mutated", reason)


def changed_on_device_alone(replay: BothSides) -> Iterator[str]:
    """The arguments that the device changed and the reference does not."""
    known = replay.reference.changed
    for name, leaf in replay.reference.leaves_there.items():
        if name in known:
            continue
        left, there = replay.actual.argument(name), leaf.there
        same = (
            left.has_bytes_of(leaf.array if there is None else there)
            if isinstance(left, DeviceArray)
            else same_bytes(left, leaf.array)
        )
        if not same:
            yield name


def check_wide(run: Run) -> None:
    """Raises NoReference where a reference of float64 tensors gave narrower ones: it has a dtype written into it."""
    for name, value in run.outputs.items():
        if isinstance(value, np.ndarray) and value.dtype != widened_dtype(value.dtype):
            raise NoReference(
                f"the reference gave {name} as {dtype_name(value.dtype)} where its arguments are float64; "
                "take dtypes from the arguments instead of writing them down"
            )


def shapes_fit(run: Run, call: Call) -> bool:
    """Has the run the recorded number of outputs, names and shapes?"""
    if call.outputs is None:
        return True
    wanted = dict(call.returned())
    if set(wanted) != set(run.outputs):
        return False
    return all(
        not isinstance(spec, TensorSpec) or np.shape(run.outputs[name]) == spec.shape for name, spec in wanted.items()
    )


def dtypes_fit(run: Run, call: Call) -> bool:
    """Has a run in the recorded dtypes the recorded output dtypes?"""
    return all(found == wanted for found, wanted in _dtype_pairs(run, call))


def widened_dtypes_fit(run: Run, call: Call) -> bool:
    """Has a reference run the recorded output dtypes, floats taken as float64?"""
    return all(widened_dtype(found) == widened_dtype(wanted) for found, wanted in _dtype_pairs(run, call))


def _dtype_pairs(run: Run, call: Call) -> Iterator[tuple[np.dtype[Any], np.dtype[Any]]]:
    outputs = lying(run.outputs)
    for name, spec in call.returned():
        value = outputs.get(name)
        if isinstance(spec, TensorSpec) and isinstance(value, (np.ndarray, DeviceArray)):
            yield value.dtype, numpy_dtype(spec.dtype)


def outputs_agree(first: Run, second: Run, near: Callable[[AnyArray, AnyArray], bool]) -> bool:
    """Are the outputs of the first run near those of the second, and equal where they are no arrays?"""
    for name, value in first.outputs.items():
        other = second.outputs.get(name)
        if not isinstance(value, np.ndarray) or not isinstance(other, np.ndarray):
            if type(value) is not type(other) or value != other:
                return False
        elif not near(value, other):
            return False
    return True


def described(run: Run) -> str:
    """The outputs of a run in words: "float32[2, 3], int64[2]"."""
    words = [
        f"{dtype_name(value.dtype)}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        for value in itertools.islice(run.outputs.values(), 6)
    ]
    return ", ".join(words) + (", ..." if len(run.outputs) > 6 else "") or "nothing"


def recorded(call: Call) -> str:
    """The recorded outputs in words."""
    words = [
        f"{value.dtype}{list(value.shape)}" if isinstance(value, TensorSpec) else type(value).__name__
        for _, value in call.returned()[:6]
    ]
    return ", ".join(words) or "nothing"


_LONGEST = 80  # characters of a structure that a message shows


def with_promises(sides: OutputPairs, engines: Engines) -> OutputPairs:
    """Outputs of both sides, with verdicts on what is otherwise than promised; as they are where nothing is asked."""
    replay = sides.replay
    demands = replay.reference.demands
    if demands is None:
        return sides
    found = engines.framework.returned(replay.actual)
    wanted = "return tensors, numbers, or lists, tuples, dicts and dataclasses of them"
    structure = [
        OutputVerdict(name, (), kind, "error", "structure", f"a {kind} cannot be compared; {wanted}")
        for name, kind in found.unknown.items()
    ]
    promised = replay.reference.framework.returned(replay.reference.run).structure
    if demands.own and not found.unknown and found.structure != promised:
        reason = f"the device returns {_shortened(found.structure)}, the reference {_shortened(promised)}"
        kind = {"(": "sequence", "{": "mapping"}.get(found.structure[0], found.structure)
        structure.append(OutputVerdict("output", (), kind, "error", "structure", reason))
    # Where the structure differs, that says more than each output that only one side has.
    other = tuple(each for each in sides.structural if not structure or not each.name.startswith("output."))
    told = {each.name for each in (*structure, *other)}
    expected = replay.reference.run.outputs
    layouts = {name: layout for name, layout in found.layouts.items() if name not in told and name in expected}
    broken, silent = _layouts_broken(replay, demands, layouts, engines.device)
    if silent:
        replay = replay.noted(f"dtype not tested, since the reference runs in float64 only: {', '.join(silent)}")
    return replace(sides, replay=replay, structural=(*structure, *other, *broken))


def with_gradients_promised(sides: OutputPairs) -> OutputPairs:
    """Gradients of both sides, with verdicts on strides where they are asked for: those of the reference's gradient, or
    of the argument itself."""
    demands = sides.replay.reference.demands
    if demands is None or not demands.strides:
        return sides
    return replace(sides, structural=(*sides.structural, *_gradients_broken(sides)))


def _gradients_broken(sides: OutputPairs) -> Iterator[OutputVerdict]:
    leaves = sides.replay.reference.leaves
    for name in (name for name in sides.expected if name in sides.actual):
        actual, expected = sides.actual[name], sides.expected[name]
        leaf = leaves[name.removeprefix("grad.")]
        own = leaf.strides or contiguous_strides(leaf.array.shape)
        wanted = (_strides(expected), own)
        if actual.shape == expected.shape and not any(_alike(actual.shape, _strides(actual), each) for each in wanted):
            reason = f"strides {list(_strides(actual))}, its argument has {list(own)}"
            yield structure_error(name, actual, reason)


def _shortened(structure: str) -> str:
    return structure if len(structure) <= _LONGEST else f"{structure[: _LONGEST - 4]} ..."


def _layouts_broken(
    replay: BothSides, demands: Demands, found: Mapping[str, Layout], device: Device
) -> tuple[list[OutputVerdict], list[str]]:
    """Verdicts on outputs that are as nothing says, and the names of those of which nothing tells the layout."""
    pending, told = dict(found), dict[str, Layout]()
    for promised in _promises(replay.reference, demands, device):
        told |= promised
        pending = {
            name: layout
            for name, layout in pending.items()
            if name not in promised or _trouble(replay, demands, name, layout, promised[name])
        }
        if not pending:
            break
    broken = [
        structure_error(name, replay.actual.outputs[name], _trouble(replay, demands, name, layout, told[name]))
        for name, layout in pending.items()
        if name in told
    ]
    return broken, [name for name in pending if name not in told]


def _promises(reference: Reference, demands: Demands, device: Device) -> Iterator[Mapping[str, Layout]]:
    """What each source says, the cheapest first; nothing where it cannot tell."""
    if demands.recorded and not demands.strides:
        specs = ((name, getattr(spec, "dtype", "")) for name, spec in reference.call.returned())
        yield {name: Layout(dtype, device.name, True, ()) for name, dtype in specs if dtype}
    if not demands.own:
        return
    if demands.drawn:
        # The strides of the reference's own run, which cost nothing, in the one floating dtype of the arguments.
        dtypes = {dtype.name for dtype in floats_of(reference.leaves).values()}
        layouts = reference.framework.returned(reference.run).layouts
        one = dtypes if len(dtypes) == 1 else ()
        yield {name: replace(layout, dtype=dtype) for dtype in one for name, layout in layouts.items()}
    yield _returned(reference, device, computed=False)
    if reference.autocast:  # which the record had, and the caller need not have
        yield _returned(replace(reference, autocast=""), device, computed=False)
    yield _returned(reference, device, computed=True)
    yield _returned(reference, reference.framework.host(), computed=True)


def _returned(reference: Reference, device: Device, *, computed: bool) -> Mapping[str, Layout]:
    # A reference need not run in other dtypes than float64, or on a device.
    with allowing_refusal(), noting_device_memory(reference.framework):
        return reference.returned(device, computed=computed).layouts
    return {}


def _trouble(replay: BothSides, demands: Demands, name: str, found: Layout, promised: Layout) -> str:
    """In what an output is not as promised; "" where it is."""
    array = lying(replay.actual.outputs)[name]
    floating = is_inexact(array.dtype)
    # All but floating numbers are compared with the reference's own dtype.
    if demands.dtype and floating and found.dtype != promised.dtype and not _narrows(replay, name, found, promised):
        return f'dtype {found.dtype}, the reference gives {promised.dtype} for these arguments; dtype="any" allows it'
    if not found.there and promised.there:
        return f"it is on {found.place}, but the call ran on {replay.source.name}"
    if demands.strides and not _alike(array.shape, found.strides, promised.strides):
        return f"strides {list(found.strides)}, the reference has {list(promised.strides)}"
    return ""


def _narrows(replay: BothSides, name: str, found: Layout, promised: Layout) -> bool:
    """Is an output in the one dtype of the arguments, or in that of one of its own shape, where the reference computes
    wider and returns that? A kernel rounds once, at its end, which many references leave out."""
    leaves, shape = replay.reference.leaves, lying(replay.actual.outputs)[name].shape
    one = narrow_dtype(leaves)
    own = {leaf.array.dtype for leaf in leaves.values() if leaf.array.shape == shape} | ({one} if one else set())
    dtype = next((each for each in own if each.name == found.dtype), None)
    wide = numpy_dtype(promised.dtype)
    return dtype is not None and is_floating(wide) and is_floating(dtype) and wide.itemsize > dtype.itemsize


def _alike(shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Do strides lay a tensor out alike? Those of a dimension of one element, and of a tensor without
    elements, say nothing; where the shapes differ, that is said elsewhere."""
    return (
        0 in shape
        or len(first) != len(second)
        or all(one == other for extent, one, other in zip(shape, first, second, strict=True) if extent > 1)
    )


def _strides(array: AnyArray) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)
