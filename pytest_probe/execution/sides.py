"""What the device and the reference gave, side by side, and what differs in structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_probe.execution.likeness import apart, same_bytes
from pytest_probe.execution.replay import Replay
from pytest_probe.execution.sampling import Sample
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.verdict import OutputVerdict


@dataclass(frozen=True, slots=True)
class Sides:
    """What the device and the reference gave in one direction, by name, and verdicts on what differs in structure."""

    replay: Replay
    actual: Mapping[str, Any]
    expected: Mapping[str, Any]
    structural: tuple[OutputVerdict, ...]
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Looks:
    """All that the device gave in one direction, and that beside the reference: in one piece, or in samples."""

    replay: Replay
    actual: Mapping[str, Any]
    sides: tuple[Sides, ...]


def whole(sides: Sides) -> Looks:
    return Looks(sides.replay, sides.actual, (sides,))


def named_gradients(gradients: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Gradients by the names that reports give them."""
    return {f"grad.{name}": value for name, value in gradients.items()}


def nearest(sides: list[Sides]) -> Sides:
    """Of several readings of a record the one that the device's results are nearest to."""
    return sides[0] if len(sides) == 1 else min(sides, key=lambda item: apart(item.actual, item.expected))


def backward_sides(replay: Replay, actual: Mapping[str, Any], expected: Mapping[str, Any]) -> Sides:
    """Gradients of both sides."""
    return Sides(replay, actual, expected, (*_cut(replay), *_missing(actual, expected)))


def _cut(replay: Replay) -> Iterator[OutputVerdict]:
    """Verdicts on outputs that only the reference can differentiate, of several."""
    for name in sorted(set(replay.expected.differentiable) - set(replay.actual.differentiable)):
        output = replay.actual.outputs.get(name)
        if isinstance(output, np.ndarray):
            reason = "the device's output carries no gradient, the reference's does"
            yield OutputVerdict(name, output.shape, output.dtype.name, "error", "structure", reason)


def _missing(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    for name in sorted(actual.keys() ^ expected.keys()):
        side = actual if name in actual else expected
        reason = "the device gives a gradient, the reference none" if name in actual else "the device gives no gradient"
        if np.any(side[name]):
            yield OutputVerdict(name, side[name].shape, side[name].dtype.name, "error", "structure", reason)


def forward_sides(replay: Replay) -> Sides:
    """Return values and changed arguments of both sides."""
    actual, expected = dict(replay.actual.outputs), dict(replay.expected.outputs)
    returned = replay.actual.returned.items() & replay.expected.returned.items()
    beside = sorted(replay.changed - {argument for _, argument in returned})
    if replay.origin == "dump" and beside:
        words = f"not judged, since a dump does not hold what the call left in it: {', '.join(beside)}"
        replay, beside = replace(replay, notes=(*replay.notes, words)), []
    for name in beside:
        actual[name], expected[name] = replay.actual.after(name), replay.expected.after(name)
    one_sided = sorted(actual.keys() ^ expected.keys())
    troubles = [_structural(name, actual.get(name), expected.get(name)) for name in one_sided]
    return Sides(replay, actual, expected, (*troubles, *changed_arguments(replay)))


def changed_arguments(replay: Replay) -> Iterator[OutputVerdict]:
    """Verdicts on arguments that only the device changed."""
    for name, leaf in replay.leaves.items():
        if name not in replay.changed and not same_bytes(replay.actual.after(name), leaf.array):
            reason = "the device changed this argument; the reference leaves it alone"
            yield OutputVerdict(name, leaf.array.shape, leaf.array.dtype.name, "error", "mutated", reason)


def _structural(name: str, actual: Any, expected: Any) -> OutputVerdict:
    present = actual if actual is not None else expected
    reason = (
        "the device returns this, the reference does not" if expected is None else "the device does not return this"
    )
    return OutputVerdict(name, np.shape(present), _dtype_name(present), "error", "structure", reason)


def _dtype_name(value: Any) -> str:
    return value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
