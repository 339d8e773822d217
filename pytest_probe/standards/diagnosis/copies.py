"""Right numbers in wrong places: shifted, swapped, transposed, reversed, another row, an argument, another output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.dtypes import BoolArray, Float64Array
from pytest_probe.standards.diagnosis.failed_output import NEARLY_ALL, Cause, FailedOutput, broadcast_or_none

# Slices of one dimension that are compared with one another, and elements of each that are looked at first.
_SLICES, _PROBES = 512, 32
# Elements of a slice: shorter ones are alike by chance.
_SLICE = 4
# Of the wrong elements, what other values in any order may explain.
_CHANCE = 0.5

_Map: TypeAlias = npt.NDArray[np.int64]
_Change: TypeAlias = Callable[[Float64Array], Float64Array]


def argument(failed: FailedOutput) -> Cause | None:
    """What is wrong equals an argument, as what nothing was written to, or what the call left as it was."""
    for name, values in failed.inputs() if failed.floating else ():
        wide = broadcast_or_none(values, failed.wrong.shape) if values.size >= _SLICE else None
        if wide is None:
            continue
        if failed.explained(wide, everywhere=False, least=2 * _SLICE) and failed.by_chance(wide) < _CHANCE:
            return Cause("moved", f"equals {name}")
    return None


def other_output(failed: FailedOutput) -> Cause | None:
    """What another output of the call should be, as of two gradients that are swapped."""
    for name, values in failed.others():
        if failed.explained(values) and failed.by_chance(values) < _CHANCE:
            return Cause("moved", f"what {name} should be")
    return None


def moved(failed: FailedOutput) -> Cause | None:
    """The reference's numbers in another order along one dimension."""
    # Numbers in another order have no common factor, or it tells as much.
    if failed.expected.size < _SLICE or failed.uniform:
        return None
    # Where a row or two are wrong, those say more than a shift of all.
    kinds = (_slice, _all) if failed.confined else (_all, _slice)
    words = next((words for kind in kinds if (words := kind(failed))), "")
    return Cause("moved", words) if words else None


def _all(failed: FailedOutput) -> str:
    # Shifted, reversed, transposed; and where nothing came round from the other end.
    for words, change, stayed in _changes(failed.expected.shape):
        values, allowed = change(failed.expected), change(failed.allowed)
        if failed.explained(values, allowed, among=stayed) and failed.by_chance(values) < _CHANCE:
            return words
    return ""


def _slice(failed: FailedOutput) -> str:
    # Which slice of the reference each wrong slice is.
    for axis in range(failed.wrong.ndim if failed.wrong.ndim > 1 else 0):
        found = _matching(failed, axis)
        if found is not None:
            values, allowed = (np.take(side, found, axis) for side in (failed.expected, failed.allowed))
            if failed.explained(values, allowed) and failed.by_chance(values) < _CHANCE:
                return _map_words(found, axis, failed.wrong.ndim)
    return ""


def _changes(shape: tuple[int, ...]) -> Iterator[tuple[str, _Change, BoolArray]]:
    every = np.ones(shape, dtype=bool)
    places = np.indices(shape, sparse=True)
    for axis, extent in enumerate(shape):
        dim = _dim(axis, len(shape))
        for step in (1, -1) if extent > 2 else ():
            inside = (places[axis] != (0 if step > 0 else extent - 1)) & every
            yield f"shifted by {step:+d} along {dim}", partial(np.roll, shift=step, axis=axis), inside
        if extent > 1:
            yield f"reversed along {dim}", partial(np.flip, axis=axis), every
    if len(shape) > 1:
        axes = (len(shape) - 2, len(shape) - 1)
        for step in (1, -1) if min(shape[-2:]) > 2 else ():
            yield f"shifted by {step:+d} in the order of memory", partial(np.roll, shift=step), every
            ends = [0 if step > 0 else shape[axis] - 1 for axis in axes]
            inside = (places[axes[0]] != ends[0]) & (places[axes[1]] != ends[1]) & every
            both = partial(np.roll, shift=(step, step), axis=axes)
            yield f"shifted by {step:+d} along each of the last two dims", both, inside
        yield "transposed: the last two dims in each other's order", _transposed, every
    else:
        yield "in rising order", np.sort, every
        yield "in falling order", lambda values: np.sort(values)[::-1], every


def _transposed(values: Float64Array) -> Float64Array:
    """The numbers of the transposed array, as if a kernel ignored strides."""
    return np.ascontiguousarray(np.swapaxes(values, -1, -2)).reshape(values.shape)


def _matching(failed: FailedOutput, axis: int) -> _Map | None:
    """For each slice the slice of the reference that it equals, itself where it is right; None where one has none."""
    extent = failed.wrong.shape[axis]
    actual, expected, allowed, wrong = (
        np.moveaxis(side, axis, 0).reshape(extent, -1)
        for side in (failed.actual, failed.expected, failed.allowed, failed.wrong)
    )
    if not 2 <= extent <= _SLICES or actual.shape[1] < _SLICE:
        return None
    bad = np.flatnonzero(wrong.mean(axis=1) > 1 - NEARLY_ALL)
    if not bad.size:
        return None
    columns = np.linspace(0, actual.shape[1] - 1, min(_PROBES, actual.shape[1])).astype(np.int64)
    found = np.arange(extent)
    for index in bad:
        distance = np.abs(expected[:, columns] - actual[index, columns]) <= allowed[:, columns]
        share = distance.mean(axis=1)
        share[index] = 0.0
        found[index] = int(np.argmax(share))
        if share[found[index]] < NEARLY_ALL - 1 / columns.size:
            return None
    return found


def _map_words(found: _Map, axis: int, rank: int) -> str:
    """What the map does, in words."""
    places = np.arange(found.size)
    moved = np.flatnonzero(found != places)
    dim = _dim(axis, rank)
    first = f"{int(moved[0])} of {dim} equals index {int(found[moved[0]])}"
    if moved.size == 1:
        return f"stale: index {first}"
    steps = np.unique(found[moved] - moved)
    if np.array_equal(found[found], places):
        if moved.size == 2:
            return f"swapped: indices {int(moved[0])} and {int(moved[1])} of {dim}"
        if np.array_equal(found[moved], moved ^ 1):
            return f"neighbours swapped along {dim}"
        if moved.size == found.size and np.array_equal(found, (places + found.size // 2) % found.size):
            return f"halves swapped along {dim}"
    if steps.size == 1:
        return f"shifted by {-int(steps[0]):+d} along {dim}"
    if np.unique(found[moved]).size == 1:
        return f"stale: {moved.size} indices of {dim} equal index {int(found[moved[0]])}"
    return f"in another order along {dim}: index {first}"


def _dim(axis: int, rank: int) -> str:
    return "dim -1" if axis == rank - 1 and rank > 1 else f"dim {axis}"
