"""A, the allowed scale of each element: what perturbed runs and the roundoff explain.

A = max(S, u |R|, share, half the smallest subnormal, at most 2^-127): S is the element's largest distance from the
float64 reference R in K perturbed runs, u the roundoff of the kernel's arithmetic, share what every element is granted
of the scatter of all. R, S and A have the output's shape."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.numerics.arrays import in_blocks
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, AnyArray, BoolArray, FloatFormat, alike, float_format, widen
from pytest_probe.numerics.statistics import stable_order

# The share of RMS(S). A convolution by FFT errs alike everywhere, also where the signal is empty and S is 0.
RMS_SHARE = 0.5
# The share of the median of S, of the elements that move, where each element errs by itself: few runs may leave one
# where it is by chance. Chosen: the limit is 64 times this, and so 8 medians. tests/evidence/test_small_elements.py has
# healthy kernels and faults on either side.
MEDIAN_SHARE = 0.125
# Share of the reference's RMS: less than any roundoff of float64, and more than what moved zeros leave.
UNMOVED = 2.0**-70
# Elements on either side, in the order of their arguments. Chosen: with none gelu's gradient fails in its tail; other
# numbers were not measured.
NEIGHBOURS = 8
# The factor between the magnitudes of neighbours' arguments: within a binade a kernel's unit is about the same.
NEAR = 2.0
# The smallest normal float64: a scale where the processor flushes smaller ones.
TINY = 2.0**-1022


class Poles(Struct, frozen=True):
    """The smallest magnitude of the numbers that runs have where the reference has none, of positive and of negative
    ones; inf where no run has such a number. A complex number counts by its modulus, as positive."""

    positive: AnyArray
    negative: AnyArray

    @classmethod
    def of(cls, run: AnyArray, expected: AnyArray) -> Poles | None:
        """The poles of one run; None where it has no number in place of an infinity or of NaN."""
        there = np.isfinite(run) & ~np.isfinite(expected)
        if not there.any():
            return None
        negative = there & (run < 0) if run.dtype.kind == "f" else np.zeros_like(there)
        size = np.abs(run)
        return cls(np.where(there & ~negative, size, np.inf), np.where(negative, size, np.inf))

    def joined(self, other: Poles | None) -> Poles:
        """The smaller of both, element by element."""
        if other is None:
            return self
        return Poles(np.minimum(self.positive, other.positive), np.minimum(self.negative, other.negative))


class Spread(Struct, frozen=True):
    """S of each element; where runs disagree on finiteness, one being finite and another not; where one of those is
    inf and where -inf (a complex number that is infinite counts as inf), and where NaN; and how large those are that
    are finite where the reference is not, None where none is."""

    size: AnyArray
    disagree: BoolArray
    above: BoolArray
    below: BoolArray
    lost: BoolArray
    poles: Poles | None = None

    @classmethod
    def of(cls, size: AnyArray) -> Spread:
        """S of elements that are finite in all runs."""
        none = np.zeros(size.shape, dtype=bool)
        return cls(size, none, none, none, none)

    def joined(self, other: Spread | None) -> Spread:
        """The larger of both, element by element."""
        if other is None:
            return self
        return Spread(
            np.maximum(self.size, other.size),
            self.disagree | other.disagree,
            self.above | other.above,
            self.below | other.below,
            self.lost | other.lost,
            other.poles if self.poles is None else self.poles.joined(other.poles),
        )

    def excuses(self, values: AnyArray) -> BoolArray:
        """Where values are infinities that a run has as well, of the same sign."""
        if np.iscomplexobj(values):
            return np.asarray(np.isinf(values) & self.above)
        return np.asarray((np.isposinf(values) & self.above) | (np.isneginf(values) & self.below))

    def explains(self, values: AnyArray, dtype: npt.DTypeLike) -> BoolArray:
        """Where values of a dtype are what runs have in place of the reference's infinity or NaN: NaN, an infinity of
        the sign that a run shows, or a number that is no smaller than the runs' numbers of its sign."""
        found = self.excuses(values) | (np.isnan(values) & self.lost)
        if self.poles is None:
            return np.asarray(found)
        form = float_format(dtype)
        # The output is rounded once, and some devices have the largest number for what overflows.
        rounded = 1 - 2 * form.roundoff
        negative = values < 0 if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
        least = np.where(negative, self.poles.negative, self.poles.positive)
        large = np.abs(values) >= np.minimum(least, form.max) * rounded
        # Where a run gives zero, growth explains no infinity.
        grows = np.isfinite(least) & ((least > 0) | ~np.isinf(values))
        return np.asarray(found | (grows & large))


class _Share(Struct, frozen=True):
    """What every element is granted, and what those are granted that are zero in the reference and move by no more than
    `unmoved`; None: the same."""

    usual: float
    still: float | None = None
    unmoved: float = 0.0


def spread_of(runs: Iterable[AnyArray], expected: AnyArray, dtype: npt.DTypeLike) -> Spread | None:
    """S, the largest deviation from the reference of perturbed runs that are finite where it is; None without runs.

    Where the reference is beyond the range of dtype, the output's, only what falls back into the range deviates.
    """
    return _widest((_distance(run, expected, dtype), run, expected) for run in runs)


def among(runs: list[AnyArray], dtype: npt.DTypeLike) -> Spread | None:
    """The largest deviation between any two of the runs; None for fewer than two."""
    pairs = itertools.combinations(runs, 2)
    return _widest((_distance(second, first, dtype), second, first) for first, second in pairs)


def _widest(distances: Iterable[tuple[AnyArray, AnyArray, AnyArray]]) -> Spread | None:
    found = None
    for distance, run, other in distances:
        disagree = np.isnan(distance)
        spread = Spread.of(distance)
        if disagree.any():
            infinite = np.isinf(run) & disagree
            below = infinite & (run < 0) if run.dtype.kind == "f" else np.zeros_like(infinite)
            lost = np.isnan(run) & disagree
            size, poles = np.where(disagree, 0.0, distance), Poles.of(run, other)
            spread = Spread(size, disagree, infinite & ~below, below, lost, poles)
        found = spread.joined(found)
    return found


def nearest_run(actual: AnyArray, runs: list[AnyArray]) -> AnyArray:
    """For each element, the runs' value that is nearest to the actual one; inf and NaN are nearest to themselves."""
    found, wide = runs[0], widen(actual)
    with np.errstate(invalid="ignore"):
        for run in runs[1:]:
            closer = alike(run, wide) | (np.abs(wide - run) < np.abs(wide - found))
            found = np.where(closer & (found != wide), run, found)
    return found


def scale(
    expected: AnyArray,
    spread: Spread | None,
    *,
    dtype: npt.DTypeLike,
    roundoff: float,
    share: float,
    still: float = math.inf,
    weights: AnyArray | None = None,
) -> AnyArray:
    """A, the allowed scale of each element: max(S, u_c |R|, share, `least_allowed`); NaN where R is.

    share: what every element is granted; still: what elements are granted that are zero in the reference and in every
    run, as what a mask hides, in units of the reference's RMS; inf: share, as all others. weights: how many elements of
    a whole each stands for.
    """
    parts = parts_of(expected, share, still, weights)
    size = None if spread is None else spread.size
    return allowed_by(expected, size, parts, dtype=dtype, roundoff=roundoff)


def median_share(spread: Spread, weights: AnyArray | None = None) -> float:
    """What every element is granted of the median of S, of the elements that move; 0 where none does. weights as of
    `scale`."""
    moves = spread.size > 0
    sizes = spread.size[moves]
    if not sizes.size:
        return 0.0
    if weights is None:
        return MEDIAN_SHARE * float(np.median(sizes))
    order = np.argsort(sizes)
    sums = np.cumsum(weights[moves][order])
    return MEDIAN_SHARE * float(sizes[order][np.searchsorted(sums, sums[-1] / 2)])


def parts_of(expected: AnyArray, share: float, still: float, weights: AnyArray | None) -> _Share | None:
    """The part of the allowed scale that every element gets from the other elements; arguments as of `scale`."""
    if still == math.inf:
        return _Share(share) if share else None
    finite = np.isfinite(expected)
    rms = root_mean_square(np.abs(expected[finite]), None if weights is None else weights[finite])
    return _Share(share, still * rms, UNMOVED * rms)


def least_allowed(form: FloatFormat) -> float:
    """What every element is granted: half the smallest subnormal, but at most half of float32's smallest normal number.
    Kernels compute float16, and what is narrower, in float32."""
    least = min(form.smallest, SMALLEST_FLOAT32)
    return least / 2 or least or TINY  # nothing is half of float64's, which may itself be flushed


def allowed_by(
    expected: AnyArray, size: AnyArray | None, share: _Share | None, *, dtype: npt.DTypeLike, roundoff: float
) -> AnyArray:
    form = float_format(dtype)
    allowed = np.maximum(roundoff * np.minimum(np.abs(expected), form.max), least_allowed(form))
    if size is not None:
        allowed = np.maximum(allowed, size)
    if size is not None and share is not None:
        granted: Any = share.usual
        if share.still is not None:
            granted = np.where((expected == 0) & (size <= share.unmoved), share.still, share.usual)
        allowed = np.maximum(allowed, granted)
    return np.asarray(allowed)


def root_mean_square(values: AnyArray, weights: AnyArray | None = None) -> float:
    """The RMS of finite, non-negative values, without overflow; 0 without any. weights: how many values of a
    whole each stands for, None: as many as any other."""
    largest = float(values.max(initial=0.0))
    if not largest:
        return 0.0
    squares = (values / largest) ** 2
    return largest * float(np.sqrt(np.mean(squares) if weights is None else np.average(squares, weights=weights)))


def pooled(spread: Spread, order: AnyArray, unit: AnyArray) -> Spread:
    """The largest spread among each element's nearest 8 below it in `order` (same shape), or among its nearest 8 above
    it, whichever is smaller; of those within twice or half of it: what is a unit of 3,000 is none of 0.02. A side that
    has fewer does not count if the other has all. unit: in what an element's spread is shared (same shape); where that
    is 0 or no number, it shares none.

    Few runs of a kernel that errs by whole units may agree by chance in an element; its neighbours show the unit, on
    either side. A pole, or an edge that an input lies on, is on one side of its neighbours.
    """
    size = spread.size
    if size.size < 2:
        return spread
    # Sorted, elements with similar arguments are neighbours, wherever they are in the tensor.
    ranks = stable_order(order)
    has_unit, none = np.isfinite(unit) & (unit > 0), np.zeros(size.shape)
    shares = np.divide(size, unit, out=none.copy(), where=has_unit)
    sizes, values = shares.reshape(-1)[ranks], np.abs(order.reshape(-1)[ranks])
    below, above = np.zeros(size.size), np.zeros(size.size)
    full_below, full_above = np.zeros(size.size, dtype=bool), np.zeros(size.size, dtype=bool)
    for away in range(1, min(NEIGHBOURS, size.size - 1) + 1):
        low, high = values[:-away], values[away:]
        alike = (low <= NEAR * high) & (high <= NEAR * low)
        np.maximum(below[away:], sizes[:-away], out=below[away:], where=alike)
        np.maximum(above[:-away], sizes[away:], out=above[:-away], where=alike)
        if away == NEIGHBOURS:
            full_below[away:], full_above[:-away] = alike, alike
    below[full_above & ~full_below], above[full_below & ~full_above] = np.inf, np.inf
    both = np.where(full_below | full_above, np.minimum(below, above), np.maximum(below, above))
    largest = np.maximum(sizes, both)
    result = np.empty(size.size)
    result[ranks] = largest
    shared = np.multiply(result.reshape(size.shape), unit, out=none, where=has_unit)
    return replace(spread, size=np.maximum(size, shared))


def _distance(run: AnyArray, expected: AnyArray, dtype: npt.DTypeLike) -> AnyArray:
    """|run - expected|, less what expected is beyond the dtype's range; 0 where both are the same inf or both NaN, NaN
    where they disagree on finiteness."""
    return in_blocks(partial(_distance_of_block, dtype), run, expected)


def _distance_of_block(dtype: npt.DTypeLike, run: AnyArray, expected: AnyArray) -> AnyArray:
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(run.astype(expected.dtype, copy=False) - expected)
        beyond = np.abs(expected) - float_format(dtype).max
        finite = np.isfinite(distance)
        if (beyond > 0).any():
            distance = np.where(finite, np.maximum(distance - np.maximum(beyond, 0.0), 0.0), distance)
    if finite.all():
        return np.asarray(distance)
    return np.asarray(np.where(finite, distance, np.where(alike(run, expected), 0.0, np.nan)))
