"""Which elements of an input a choice (a maximum, a median, a sorted order) may take for one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.standards.question import Question

# Where the dimension stands that an API chooses along, and what it is where the call does not say: None is all of them.
DIMENSIONS: Mapping[str, tuple[int, str, Any]] = {
    "sort": (1, "dim", -1),
    "msort": (1, "", 0),
    "topk": (2, "dim", -1),
    "kthvalue": (2, "dim", -1),
    "mode": (1, "dim", -1),
    "median": (1, "dim", None),
    "nanmedian": (1, "dim", None),
    "cummax": (1, "dim", None),
    "cummin": (1, "dim", None),
    "max": (1, "dim", None),
    "min": (1, "dim", None),
    "amax": (1, "dim", None),
    "amin": (1, "dim", None),
    "aminmax": (1, "dim", None),
}


def groups(question: Question, values: AnyArray) -> AnyArray:
    """A number for every element of the flattened input, the same for those that may stand for one another: equal
    values of one row, or of one window of a pooling, or of windows that overlap in them."""
    name = question.facts.name
    if "max_pool" in name:
        plane = math.prod(values.shape[values.ndim - int(name[-2]) :])
        return _of_windows(widen(values).reshape(-1, plane), windows(question, values.shape))
    return _of_rows(values, _dimensions(question, values.ndim))


def _dimensions(question: Question, rank: int) -> Sequence[int]:
    place, name, default = DIMENSIONS.get(question.facts.name, (1, "dim", None))
    given = question.argument(place, name, default)
    if isinstance(given, np.ndarray) or given is None or given == ():
        return range(rank)
    return [int(dim) % max(rank, 1) for dim in (given if isinstance(given, (list, tuple)) else [given])]


def _of_rows(values: AnyArray, dims: Sequence[int]) -> AnyArray:
    """Equal values along dims."""
    others = [dim for dim in range(values.ndim) if dim not in dims]
    shape = tuple(extent if dim in others else 1 for dim, extent in enumerate(values.shape))
    rows = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), values.shape)
    pairs = np.stack([rows.ravel().astype(np.float64), widen(values).ravel()], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _of_windows(planes: AnyArray, members: AnyArray) -> AnyArray:
    """members: windows by places of a plane, -1 for what is outside. The largest values of a window may stand for one
    another, and so may those of another window that has one of them."""
    padded = np.concatenate([planes, np.full((len(planes), 1), -np.inf)], axis=1)[:, members]
    tied = (padded == padded.max(axis=-1, keepdims=True)) & (members >= 0)
    plane, window, member = np.nonzero(tied & (tied.sum(axis=-1, keepdims=True) > 1))
    place = plane * planes.shape[1] + members[window, member]
    key = plane * len(members) + window
    flat = np.arange(planes.size)
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


def windows(question: Question, shape: Sequence[int]) -> AnyArray:
    """The places in a plane that each window of a pooling sees, an array of windows by places, -1 for padding."""
    rank = int(question.facts.name[-2])
    plane = shape[len(shape) - rank :]
    along = _adaptive if question.facts.name.startswith("adaptive") else _strided
    seen = [along(question, dim, extent) for dim, extent in enumerate(plane)]
    found = np.zeros((1, 1), dtype=np.int64)
    for extent, places in zip(plane, seen, strict=True):
        inside = (found[:, None, :, None] >= 0) & (places[None, :, None, :] >= 0)
        joined = np.where(inside, found[:, None, :, None] * extent + places[None, :, None, :], -1)
        found = joined.reshape(found.shape[0] * places.shape[0], -1)
    return found


def _strided(question: Question, dim: int, extent: int) -> AnyArray:
    given: Callable[[int, str, Any], Any] = question.argument
    kernel = _of_dim(given(1, "kernel_size", None), dim)
    stride = _of_dim(given(2, "stride", None) or given(1, "kernel_size", None), dim)
    padding, dilation = _of_dim(given(3, "padding", 0), dim), _of_dim(given(4, "dilation", 1), dim)
    room = extent + 2 * padding - dilation * (kernel - 1) - 1
    count = room // stride + 1
    if given(5, "ceil_mode", False):
        count = -(-room // stride) + 1
        count -= (count - 1) * stride >= extent + padding  # the last window starts inside, or in the padding before
    places = np.arange(count)[:, None] * stride - padding + np.arange(kernel)[None, :] * dilation
    return np.where((places >= 0) & (places < extent), places, -1)


def _adaptive(question: Question, dim: int, extent: int) -> AnyArray:
    count = _of_dim(question.argument(1, "output_size"), dim) or extent
    starts = np.arange(count) * extent // count
    ends = -(-(np.arange(1, count + 1) * extent) // count)
    places = starts[:, None] + np.arange(int((ends - starts).max()))[None, :]
    return np.where(places < ends[:, None], places, -1)


def _of_dim(value: Any, dim: int) -> Any:
    if isinstance(value, (list, tuple)):
        return value[dim] if len(value) > 1 else value[0]
    return value
