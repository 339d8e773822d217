"""Outputs side by side, and what differs in structure: numbers, names, shapes, dtypes, arguments that were changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.replay import Replay
from pytest_probe.errors import NoReference
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.model.run import Run
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.closeness import distance, reference_array, same_bytes, widened_dtype
from pytest_probe.numerics.dtypes import AnyArray, numpy_dtype

if TYPE_CHECKING:
    from pytest_probe.check.large.sampler import Sample


class Sides(Struct, frozen=True):
    """What both sides gave in one direction, by name, and verdicts on what differs in structure; sample tells that it
    is part of one tensor, other_reading is the same in a reading of the record that the device is farther from."""

    replay: Replay
    actual: Mapping[str, Any]
    expected: Mapping[str, Any]
    structural: tuple[OutputVerdict, ...]
    sample: Sample | None = None
    other_reading: Sides | None = None


class Compared(Struct, frozen=True):
    """All that the source gave in one direction, and that beside the reference: in one piece, or in samples."""

    replay: Replay
    actual: Mapping[str, Any]
    sides: tuple[Sides, ...]

    @classmethod
    def of(cls, *sides: Sides) -> Compared:
        """One or several pieces, none of them a sample."""
        actual = {name: value for each in sides for name, value in each.actual.items()}
        return cls(sides[0].replay, actual, sides)


def named_gradients(gradients: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Gradients by the names that reports give them."""
    return {f"grad.{name}": value for name, value in gradients.items()}


def nearest_structure(sides: list[Sides]) -> Sides:
    """Of the readings of a record the one that the device's results are nearest to, and beside it the other."""
    nearest, *others = sorted(sides, key=lambda item: distance(item.actual, item.expected)) if sides[1:] else sides
    return replace(nearest, other_reading=others[0]) if others else nearest


def backward_sides(replay: Replay, actual: Mapping[str, Any], expected: Mapping[str, Any]) -> Sides:
    """Gradients of both sides."""
    return Sides(replay, actual, expected, (*_undifferentiable(replay), *_one_sided(actual, expected)))


def _undifferentiable(replay: Replay) -> Iterator[OutputVerdict]:
    """Verdicts on outputs that only the reference can differentiate, of several."""
    for name in sorted(set(replay.reference.run.differentiable) - set(replay.actual.differentiable)):
        output = replay.actual.outputs.get(name)
        if isinstance(output, np.ndarray):
            reason = "the device's output has no gradient, the reference's does"
            yield OutputVerdict(name, output.shape, output.dtype.name, "error", "structure", reason)


def _one_sided(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    """Verdicts on gradients that only one side gives."""
    for name in sorted(actual.keys() ^ expected.keys()):
        side = actual if name in actual else expected
        reason = "the device gives a gradient, the reference none" if name in actual else "the device gives no gradient"
        # A gradient of zeros is as good as none.
        if np.any(side[name]):
            yield OutputVerdict(name, side[name].shape, side[name].dtype.name, "error", "structure", reason)


def forward_sides(replay: Replay) -> Sides:
    """Return values and changed arguments of both sides."""
    changed = tuple(_changed_on_device_alone(replay))
    written = frozenset(name for name in changed if replay.reference.writes(name))
    if written:
        replay = replace(replay, reference=replay.reference.with_written(written))
    reference = replay.reference
    actual, expected = dict(replay.actual.outputs), dict(reference.run.outputs)
    # What is changed and returned is judged once, as an output.
    returned = replay.actual.returned.items() & reference.run.returned.items()
    beside = sorted(reference.changed - {argument for _, argument in returned})
    # A dump has arguments as they were before the call.
    if beside and not replay.source.tells_changes:
        words = f"not judged, because a dump does not store what the call wrote there: {', '.join(beside)}"
        replay, beside = replace(replay, reference=replace(reference, notes=(*reference.notes, words))), []
    for name in beside:
        # A run that was kept has no values of what it left as it was.
        before = reference_array(reference.leaves[name].array) if name in written else None
        expected[name] = reference.run.after(name) if before is None else before
        actual[name] = replay.actual.after(name)
    one_sided = sorted(actual.keys() ^ expected.keys())
    troubles = [_missing(name, actual.get(name), expected.get(name)) for name in one_sided]
    alone = (name for name in changed if name not in written)
    return Sides(replay, actual, expected, (*troubles, *_mutated(replay, alone)))


def changed_arguments(replay: Replay) -> Iterator[OutputVerdict]:
    """Verdicts on arguments that only the device changed."""
    return _mutated(replay, _changed_on_device_alone(replay))


def _mutated(replay: Replay, names: Iterable[str]) -> Iterator[OutputVerdict]:
    for name in names:
        array = replay.reference.leaves[name].array
        reason = "the device changed this argument; the reference does not change it"
        yield OutputVerdict(name, array.shape, array.dtype.name, "error", "mutated", reason)


def _changed_on_device_alone(replay: Replay) -> Iterator[str]:
    known = replay.reference.changed
    for name, leaf in replay.reference.leaves.items():
        if name not in known and not same_bytes(replay.actual.after(name), leaf.array):
            yield name


def _missing(name: str, actual: Any, expected: Any) -> OutputVerdict:
    present = actual if actual is not None else expected
    reason = (
        "the device returns this, the reference does not" if expected is None else "the device does not return this"
    )
    dtype = present.dtype.name if isinstance(present, np.ndarray) else type(present).__name__
    return OutputVerdict(name, np.shape(present), dtype, "error", "structure", reason)


def check_wide(run: Run) -> None:
    """Raises NoReference where a reference of float64 tensors gave narrower ones: it has a dtype written into it."""
    for name, value in run.outputs.items():
        if isinstance(value, np.ndarray) and value.dtype != widened_dtype(value.dtype):
            raise NoReference(
                f"the reference gave {name} as {value.dtype.name} where its arguments are float64; "
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
    for name, spec in call.returned():
        value = run.outputs.get(name)
        if isinstance(spec, TensorSpec) and isinstance(value, np.ndarray):
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
        f"{value.dtype.name}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
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
