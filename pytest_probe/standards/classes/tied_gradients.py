"""Gradients that may go to any of several equal values of an input: those of a maximum, a median, a sorted order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.noise.standard import NoiseStandard
from pytest_probe.standards.tables import details


def tie_groups(comparison: Comparison, values: AnyArray) -> AnyArray:
    """A group number for every element of the flattened input. Elements of a group are interchangeable: equal values of
    one row, of one window of a pooling, or of windows that overlap in them."""
    rank = _window_rank(comparison)
    if rank:
        plane = math.prod(values.shape[values.ndim - rank :])
        return _of_windows(widen(values).reshape(-1, plane), pooling_windows(comparison, values.shape))
    # Equal values along the dimensions.
    given = comparison.call.argument("dim")
    dims: Sequence[int] = range(values.ndim)
    if not (isinstance(given, np.ndarray) or given is None or given == ()):
        given = given if isinstance(given, (list, tuple)) else [given]
        dims = [int(dim) % max(values.ndim, 1) for dim in given]
    others = [dim for dim in range(values.ndim) if dim not in dims]
    shape = tuple(extent if dim in others else 1 for dim, extent in enumerate(values.shape))
    rows = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), values.shape)
    pairs = np.stack([rows.ravel().astype(np.float64), widen(values).ravel()], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _window_rank(comparison: Comparison) -> int:
    """Dimensions of a pooling's window; 0 for other APIs."""
    return int(next(iter(details(comparison.classes, "windows")), 0))


def _of_windows(planes: AnyArray, members: AnyArray) -> AnyArray:
    """The largest values of a window are interchangeable, also with those of another window that shares one of them.

    members: the places in a plane, windows by places; -1 for places outside.
    """
    padded = np.concatenate([planes, np.full((len(planes), 1), -np.inf)], axis=1)[:, members]
    tied = (padded == padded.max(axis=-1, keepdims=True)) & (members >= 0)
    plane, window, member = np.nonzero(tied & (tied.sum(axis=-1, keepdims=True) > 1))
    place = plane * planes.shape[1] + members[window, member]
    key = plane * len(members) + window
    flat = np.arange(planes.size)
    # Windows overlap, so that groups join through common elements: each pass halves the way to the least one.
    while len(place):
        least = np.full(len(planes) * len(members), flat.size)
        np.minimum.at(least, key, flat[place])
        joined = flat.copy()
        np.minimum.at(joined, place, least[key])
        joined = joined[joined]
        if np.array_equal(joined, flat):
            break
        flat = joined
    return np.unique(flat, return_inverse=True)[1].reshape(-1)


def pooling_windows(comparison: Comparison, shape: Sequence[int]) -> AnyArray:
    """The places in a plane of each window of a pooling, an array of windows by places, -1 for padding."""
    plane = shape[len(shape) - _window_rank(comparison) :]
    along = _adaptive if "adaptive_windows" in comparison.classes else _strided
    seen = [along(comparison, dim, extent) for dim, extent in enumerate(plane)]
    found = np.zeros((1, 1), dtype=np.int64)
    for extent, places in zip(plane, seen, strict=True):
        inside = (found[:, None, :, None] >= 0) & (places[None, :, None, :] >= 0)
        joined = np.where(inside, found[:, None, :, None] * extent + places[None, :, None, :], -1)
        found = joined.reshape(found.shape[0] * places.shape[0], -1)
    return found


def _strided(comparison: Comparison, dim: int, extent: int) -> AnyArray:
    given = comparison.call.argument
    kernel = _of_dim(given("kernel_size"), dim)
    stride = _of_dim(given("stride") or given("kernel_size"), dim)
    padding, dilation = _of_dim(given("padding"), dim), _of_dim(given("dilation"), dim)
    room = extent + 2 * padding - dilation * (kernel - 1) - 1
    count = room // stride + 1
    if given("ceil_mode"):
        count = -(-room // stride) + 1
        count -= (count - 1) * stride >= extent + padding  # the last window starts inside, or in the padding before
    places = np.arange(count)[:, None] * stride - padding + np.arange(kernel)[None, :] * dilation
    return np.where((places >= 0) & (places < extent), places, -1)


def _adaptive(comparison: Comparison, dim: int, extent: int) -> AnyArray:
    count = _of_dim(comparison.call.argument("output_size"), dim) or extent
    starts = np.arange(count) * extent // count
    ends = -(-(np.arange(1, count + 1) * extent) // count)
    places = starts[:, None] + np.arange(int((ends - starts).max()))[None, :]
    return np.where(places < ends[:, None], places, -1)


def _of_dim(value: Any, dim: int) -> Any:
    if isinstance(value, (list, tuple)):
        return value[dim] if len(value) > 1 else value[0]
    return value


class Ties:
    """By noise; if that fails, by noise on the sums over equal input values, since the order of equals is free."""

    name = "ties"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        plain = NoiseStandard().judge(comparison)
        values = comparison.call.argument("input")
        fits = isinstance(values, np.ndarray) and values.shape == comparison.actual.shape
        if plain.verdict != "error" or not fits or not comparison.name.endswith((".input.0", ".kwargs.input")):
            return plain
        groups = tie_groups(comparison, values)
        # All groups are single elements: no choice is free.
        if groups.max(initial=0) + 1 == values.size:
            return plain
        actual = _sums(groups, widen(comparison.actual)).astype(comparison.actual.dtype)
        summed = replace(comparison.with_reference(partial(_sums, groups)), actual=actual, weights=None)
        verdict = NoiseStandard().judge(summed)
        if verdict.verdict == "error":
            return plain
        return replace(verdict, standard=self.name, shape=comparison.actual.shape)


def _sums(groups: AnyArray, gradient: AnyArray) -> AnyArray:
    return np.bincount(groups, weights=gradient.reshape(-1))
