"""Gradients that a call's 16-bit kernels sum over all rows in their order, of a call that is cut: its pieces run one
after the other, and each goes on from the sums that the one before left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.run import Leaf, Steps, Way
from pytest_probe.numerics.dtypes import AnyArray

if TYPE_CHECKING:
    from pytest_probe.check.large.cuts import Cut
    from pytest_probe.check.replay import Reference

_STREAMS = RandomStreams()


def gradients_in_turn(
    reference: Reference, leaves: Mapping[str, Leaf], way: Way, incoming: Mapping[str, AnyArray]
) -> dict[str, AnyArray] | None:
    """The gradients of the arguments that are not cut, bit for bit as the whole gives them; None where that is not
    certain of pieces."""
    corner = reference.corner
    if corner is None or not _rounds_alike(way):
        return None
    places = (slice(place, place + 1) for place in range(corner.own.extent))
    given = {
        name: _STREAMS.at(name).standard_normal(corner.run.outputs[name].shape) for name in corner.run.differentiable
    }
    tried = _gradients(reference, corner.own, way, corner.leaves, given, places)
    if tried is None:
        return None
    run = reference.again(corner.leaves, way, reference.wanted)
    whole = reference.framework.gradients(run, given)
    if not all(np.array_equal(array, whole[name]) for name, array in tried.items()):
        return None
    windows = corner.cut.windows({name: leaf.array for name, leaf in leaves.items()})
    return _gradients(reference, corner.cut, way, leaves, incoming, windows)


def _rounds_alike(way: Way) -> bool:
    """Does such a run round the same steps to 16 bit in each piece, without anything drawn?"""
    steps = way.steps
    if steps is None or way.device is not None:
        return False
    return steps == Steps(steps.dtype, fine=False, wide=steps.wide, kernels=steps.kernels)


def _gradients(
    reference: Reference,
    cut: Cut,
    way: Way,
    leaves: Mapping[str, Leaf],
    incoming: Mapping[str, AnyArray],
    windows: Iterable[slice],
) -> dict[str, AnyArray] | None:
    """Of a reference whose call is cut; None where anything that pieces add up to is no sum that the kernels took on
    from piece to piece."""
    sums: dict[str, AnyArray] = {}
    framework = reference.framework
    with framework.rows_in_turn(cut.extent) as turn:
        for window in windows:
            if turn is None or any(array.any() for array in sums.values()):
                return None
            turn.begin(window)
            run = reference.again(cut.leaves_at(leaves, window), way, reference.wanted)
            cut.add(sums, framework.gradients(run, cut.incoming_at(incoming, window)), window)
        return sums if sums and turn is not None and all(map(turn.has_given, sums.values())) else None
