"""What a caller's outputs must be beside their numbers: structure, dtype, device, strides.

The reference promises it, by what it returns on the same arguments in their own dtypes. That is found from shapes and
dtypes first; where the outputs are otherwise, the reference runs on the device under test, and then on the CPU. An
output that is as any of these say is as promised, since kernels differ between devices, and what the user has set
counts on one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from pytest_probe.check.device_memory import noting_device_memory
from pytest_probe.check.prepare import narrow_dtype
from pytest_probe.check.replay import Reference, Replay
from pytest_probe.check.structure import Sides
from pytest_probe.inputs.strides import contiguous_strides
from pytest_probe.model.arguments import floats_of
from pytest_probe.model.case import Demands
from pytest_probe.model.run import Device, Layout, Returned
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, numpy_dtype
from pytest_probe.user_errors import allowing_refusal

_LONGEST = 80  # characters of a structure that a message shows


def with_promises(sides: Sides, device: Device) -> Sides:
    """Outputs of both sides, with verdicts on what is otherwise than promised; as they are where nothing is asked."""
    replay = sides.replay
    demands = replay.reference.demands
    if demands is None:
        return sides
    found = replay.reference.framework.returned(replay.actual)
    structure = tuple(_structure_broken(replay, demands, found))
    # Where the structure differs, that says more than each output that only one side has.
    other = tuple(each for each in sides.structural if not structure or not each.name.startswith("output."))
    told = {each.name for each in (*structure, *other)}
    expected = replay.reference.run.outputs
    layouts = {name: layout for name, layout in found.layouts.items() if name not in told and name in expected}
    broken, silent = _layouts_broken(replay, demands, layouts, device)
    return replace(sides, replay=_noted(replay, silent), structural=(*structure, *other, *broken))


def with_gradients_promised(sides: Sides) -> Sides:
    """Gradients of both sides, with verdicts on strides where they are asked for: those of the reference's gradient, or
    of the argument itself."""
    demands = sides.replay.reference.demands
    if demands is None or not demands.strides:
        return sides
    return replace(sides, structural=(*sides.structural, *_gradients_broken(sides)))


def _gradients_broken(sides: Sides) -> Iterator[OutputVerdict]:
    leaves = sides.replay.reference.leaves
    for name in (name for name in sides.expected if name in sides.actual):
        actual, expected = sides.actual[name], sides.expected[name]
        leaf = leaves[name.removeprefix("grad.")]
        own = leaf.strides or contiguous_strides(leaf.array.shape)
        wanted = (_strides(expected), own)
        if actual.shape == expected.shape and not any(_alike(actual.shape, _strides(actual), each) for each in wanted):
            reason = f"strides {list(_strides(actual))}, its argument has {list(own)}"
            yield OutputVerdict(name, actual.shape, actual.dtype.name, "error", "structure", reason)


def _structure_broken(replay: Replay, demands: Demands, found: Returned) -> Iterator[OutputVerdict]:
    for name, kind in found.unknown.items():
        wanted = "return tensors, numbers, or lists, tuples, dicts and dataclasses of them"
        yield OutputVerdict(name, (), kind, "error", "structure", f"a {kind} cannot be compared; {wanted}")
    expected = replay.reference.framework.returned(replay.reference.run).structure
    if demands.own and not found.unknown and found.structure != expected:
        reason = f"the device returns {_shortened(found.structure)}, the reference {_shortened(expected)}"
        kind = {"(": "sequence", "{": "mapping"}.get(found.structure[0], found.structure)
        yield OutputVerdict("output", (), kind, "error", "structure", reason)


def _shortened(structure: str) -> str:
    return structure if len(structure) <= _LONGEST else f"{structure[: _LONGEST - 4]} ..."


def _layouts_broken(
    replay: Replay, demands: Demands, found: Mapping[str, Layout], device: Device
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
        _verdict(replay, name, _trouble(replay, demands, name, layout, told[name]))
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
        yield _as_reference(reference)
    yield _returned(reference, device, computed=False)
    if reference.autocast:  # which the record had, and the caller need not have
        yield _returned(replace(reference, autocast=""), device, computed=False)
    yield _returned(reference, device, computed=True)
    yield _returned(reference, reference.framework.device("cpu"), computed=True)


def _as_reference(reference: Reference) -> Mapping[str, Layout]:
    """The strides of the reference's own run, which cost nothing, in the one floating dtype of the arguments."""
    dtypes = {dtype.name for dtype in floats_of(reference.leaves).values()}
    layouts = reference.framework.returned(reference.run).layouts
    return (
        {name: replace(layout, dtype=dtype) for dtype in dtypes for name, layout in layouts.items()}
        if len(dtypes) == 1
        else {}
    )


def _returned(reference: Reference, device: Device, *, computed: bool) -> Mapping[str, Layout]:
    # A reference need not run in other dtypes than float64, or on a device.
    with allowing_refusal(), noting_device_memory(reference.framework):
        return reference.returned(device, computed=computed).layouts
    return {}


def _trouble(replay: Replay, demands: Demands, name: str, found: Layout, promised: Layout) -> str:
    """In what an output is not as promised; "" where it is."""
    array = replay.actual.outputs[name]
    floating = is_floating(array.dtype) or is_complex(array.dtype)
    # What is no floating number is compared with the reference's own dtype.
    if demands.dtype and floating and found.dtype != promised.dtype and not _narrows(replay, name, found, promised):
        return f'dtype {found.dtype}, the reference gives {promised.dtype} for these arguments; dtype="any" allows it'
    if not found.there and promised.there:
        return f"it is on {found.place}, but the call ran on {replay.source.name}"
    if demands.strides and not _alike(array.shape, found.strides, promised.strides):
        return f"strides {list(found.strides)}, the reference has {list(promised.strides)}"
    return ""


def _narrows(replay: Replay, name: str, found: Layout, promised: Layout) -> bool:
    """Is an output in the one dtype of the arguments, or in that of one of its own shape, where the reference computes
    wider and returns that? A kernel rounds once, at its end, which many references leave out."""
    leaves, shape = replay.reference.leaves, replay.actual.outputs[name].shape
    one = narrow_dtype(leaves)
    own = {leaf.array.dtype for leaf in leaves.values() if leaf.array.shape == shape} | ({one} if one else set())
    dtype = next((each for each in own if each.name == found.dtype), None)
    wide = numpy_dtype(promised.dtype)
    return dtype is not None and is_floating(wide) and is_floating(dtype) and wide.itemsize > dtype.itemsize


def _verdict(replay: Replay, name: str, reason: str) -> OutputVerdict:
    array = replay.actual.outputs[name]
    return OutputVerdict(name, array.shape, array.dtype.name, "error", "structure", reason)


def _noted(replay: Replay, silent: list[str]) -> Replay:
    if not silent:
        return replay
    words = f"dtype not tested, since the reference runs in float64 only: {', '.join(silent)}"
    return replace(replay, reference=replace(replay.reference, notes=(*replay.reference.notes, words)))


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
