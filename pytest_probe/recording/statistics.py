"""Statistics of many small arrays at once; sums in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import UNSET

from pytest_probe.recording.masses import fill_masses
from pytest_probe.recording.snapshot import Seen, json_number

KEPT = 64  # integers of one tensor: that many sizes, lengths or repeats stand in a dump


def fill_together(values: np.ndarray, sizes: Sequence[int], seen: Sequence[Seen]) -> None:
    """Fill in the statistics of arrays that lie one behind the other in values; no size is 0.

    values: 1-d, of any float, integer or bool dtype of NumPy's own.
    """
    starts = np.zeros(len(sizes), np.intp)
    np.cumsum(sizes[:-1], out=starts[1:])
    # NaN and inf go through as they shall; they are looked at one by one below.
    with np.errstate(invalid="ignore", over="ignore"):
        wide = values.astype(np.float64)
        tops = np.maximum.reduceat(values, starts).tolist()
        bottoms = np.minimum.reduceat(values, starts).tolist()
        sums = np.add.reduceat(wide, starts).tolist()
        squares = np.add.reduceat(wide * wide, starts)
        norms = np.sqrt(squares).tolist()
    for one, size, top, bottom, total, norm in zip(seen, sizes, tops, bottoms, sums, norms, strict=True):
        one.max, one.min, one.mean, one.norm = top, bottom, total / size, norm
    for index in np.flatnonzero(~np.isfinite(squares)).tolist():
        unusual(seen[index], wide[starts[index] : starts[index] + sizes[index]])
    if values.dtype.kind == "f":
        fill_masses(values, starts, seen)
    if values.dtype.kind == "b":
        for one, true in zip(seen, sums, strict=True):
            # Of booleans a dump has the number of True.
            one.mean = one.norm = None
            one.true = round(true)
    elif values.dtype.kind in "iu":
        _keep(values, starts.tolist(), sizes, seen)


def _keep(values: np.ndarray, starts: Sequence[int], sizes: Sequence[int], seen: Sequence[Seen]) -> None:
    """Fill in the elements of arrays that are few, and lie in their order; one alone is its maximum."""
    for one, start, size in zip(seen, starts, sizes, strict=True):
        if 1 < size <= KEPT and one.stride is UNSET:
            one.values = values[start : start + size].tolist()


def unusual(seen: Seen, wide: np.ndarray) -> None:
    """The statistics of float64 data in which something is not finite, or overflows when it is squared."""
    finite = wide[np.isfinite(wide)]
    with np.errstate(invalid="ignore", over="ignore"):
        seen.max, seen.min = json_number(float(wide.max())), json_number(float(wide.min()))
        seen.mean = json_number(float(wide.mean()))
    if finite.size == wide.size:
        # Everything is finite, and only the squares overflowed.
        scale = float(np.abs(wide).max())
        seen.norm = json_number(scale * math.sqrt(float(np.square(wide / scale).sum())))
        return
    nan = int(np.isnan(wide).sum())
    seen.nan, seen.inf = nan, wide.size - finite.size - nan
    seen.negative_inf = int(np.isneginf(wide).sum())
    seen.norm = json_number(math.nan if nan else math.inf)
    if finite.size:
        seen.high, seen.low = float(finite.max()), float(finite.min())
