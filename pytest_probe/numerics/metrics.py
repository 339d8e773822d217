"""Errors of an output in a few numbers: errors of its elements, of the worst element, and of the output as a whole,
such as the angle between both sides."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK, PASS, blocks
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    Float64Array,
    FloatFormat,
    alike,
    float_format,
    nonfinite_distance,
    round_to_spacing,
    widen,
)

# OpenBLAS starts threads, which wait in a spin loop, for dot products of more than 10,000 elements.
_DOT = 8192
# Squares of float64 below this may have lost bits to underflow.
_LEAST = 1e-280


def dot(first: Float64Array, second: Float64Array) -> float:
    """The dot product of real one-dimensional arrays, in the calling thread."""
    if first.size <= _DOT:
        return float(np.dot(first, second))
    whole = first.size - first.size % _DOT
    # matmul makes a dot product of every row, in one call.
    rows = np.matmul(first[:whole].reshape(-1, 1, _DOT), second[:whole].reshape(-1, _DOT, 1))
    return float(rows.sum()) + float(np.dot(first[whole:], second[whole:]))


def exact_total(values: Float64Array) -> float:
    """The sum of a one-dimensional array."""
    return float(np.einsum("i->", values))


class Vectors:
    """Sums of a*a, b*b, a*b and (a - b)^2 over blocks."""

    __slots__ = ("aa", "ab", "bb", "dd")

    def __init__(self) -> None:
        self.aa = self.bb = self.ab = self.dd = 0.0

    def add(self, a: Float64Array, b: Float64Array, difference: Float64Array) -> float:
        """Take in a block. Returns its sum of (a - b)^2; the difference's signs do not matter."""
        first, second, squares = dot(a, a), dot(b, b), dot(difference, difference)
        # For near vectors the product follows from the difference, which keeps its digits.
        near = squares <= min(first, second)
        self.aa += first
        self.bb += second
        self.dd += squares
        self.ab += (first + second - squares) / 2 if near else dot(a, b)
        return squares

    @property
    def exact(self) -> bool:
        """Have no squares overflowed, nor so many underflowed that the sums are wrong?"""
        return _LEAST < self.aa < math.inf and _LEAST < self.bb < math.inf

    def distance(self, offset: float = 0.0) -> float | None:
        """1 - a.b / (|a| |b|); with an offset added to both parts of the fraction where one is given. None where a
        vector is zero and no offset given, NaN where a sum is."""
        product = math.sqrt(self.aa) * math.sqrt(self.bb)
        if not product:
            return 0.0 if offset else None
        if self.dd <= min(self.aa, self.bb):
            # Near vectors: 1 - a.b would lose all but the first digits.
            shorter = (self.aa - self.bb) / (math.sqrt(self.aa) + math.sqrt(self.bb))
            gap = (self.dd - shorter * shorter) / 2
        else:
            gap = product - self.ab
        return min(max(gap / (product + offset), 0.0), 2.0) if not math.isnan(gap) else math.nan


def rescaled(actual: AnyArray, expected: AnyArray, size: int) -> Vectors:
    """The sums of the elements finite on both sides, each side scaled by a power of two lest squares overflow or
    underflow. Reads the arrays twice."""
    tops = [0.0, 0.0]
    for pair in blocks(actual, expected, size):
        tops = [max(top, float(np.abs(side).max(initial=0.0))) for top, side in zip(tops, _finites(*pair), strict=True)]
    # Of subnormal numbers the power itself would overflow.
    scales = [math.ldexp(1.0, -max(math.frexp(top)[1], -1020)) if top else 1.0 for top in tops]
    found = Vectors()
    for pair in blocks(actual, expected, size):
        a, b = (side * scale for side, scale in zip(_finites(*pair), scales, strict=True))
        found.add(a, b, a - b)
    return found


def _finites(a: AnyArray, b: AnyArray) -> tuple[Float64Array, Float64Array]:
    a, b = widen(a), widen(b)
    both = np.isfinite(a) & np.isfinite(b)
    kind = np.result_type(a, b)
    first, second = (np.ascontiguousarray(np.where(both, side, 0.0), dtype=kind).view(np.float64) for side in (a, b))
    return first, second


def describe(actual: npt.ArrayLike, expected: npt.ArrayLike) -> dict[str, float | int]:
    """Metrics of an output in its own dtype against a float64 or complex128 reference of the same shape.

    max_abs, max_rel (where expected is not 0), max_ulp and mean_ulp are taken of |actual - expected|, by modulus where
    complex, the ULP by the larger part. Where just one is NaN or inf all four are inf; where both are alike, 0.
    mismatch is the share of elements that are not the reference correctly rounded, nonfinite_mismatch the number of
    those where NaN or inf disagree. Integers and bool have max_abs (exact where both are integers) and mismatch only.
    Values are Python's own numbers, never NaN. Raises ValueError where the shapes differ.
    """
    values, wanted = np.asarray(actual), np.asarray(expected)
    if values.shape != wanted.shape:
        raise ValueError(f"actual has shape {values.shape}, expected {wanted.shape}")
    if values.dtype.kind in "iub":
        largest: float | int = 0
        differing = 0
        for one, other in blocks(values, wanted):
            differing += int(np.count_nonzero(one != other))
            largest = max(largest, _largest_difference(one, other))
        return {"max_abs": largest, "mismatch": differing / max(values.size, 1)}
    return Description.of(values, wanted).metrics()


class Description:
    """The metrics of `describe` of a tensor that is seen piece by piece."""

    def __init__(self) -> None:
        self._largest = {"max_abs": 0.0, "max_rel": 0.0, "max_ulp": 0.0}
        self._sum_ulp = 0.0
        self._differing = self._nonfinite = self.size = 0

    @classmethod
    def of(cls, actual: AnyArray, expected: AnyArray) -> Description:
        """Of one piece."""
        found = cls()
        found._add(actual, expected)
        return found

    @classmethod
    def seen(cls, largest: Mapping[str, float], sum_ulp: float, differing: int, size: int) -> Description:
        """Of one piece that others have seen, and in which all is finite."""
        found = cls()
        found._largest, found._sum_ulp = dict(largest), sum_ulp
        found._differing, found.size = differing, size
        return found

    def _add(self, actual: AnyArray, expected: AnyArray) -> None:
        with np.errstate(all="ignore"):
            for row in _rows(actual, expected):
                self._largest = {name: max(value, getattr(row, name)) for name, value in self._largest.items()}
                # Python's sum() rounds in another way from 3.12 on.
                self._sum_ulp = reduce(operator.add, row.sums_ulp, self._sum_ulp)
                self._differing += row.differing
                self._nonfinite += row.nonfinite
        self.size += actual.size

    def beyond(self, other: Description) -> list[str]:
        """The metrics that have a larger value here."""
        return [name for name, value in self._largest.items() if value > other._largest[name]]

    def take(self, other: Description) -> None:
        """Add what was seen elsewhere."""
        self._largest = {name: max(value, other._largest[name]) for name, value in self._largest.items()}
        self._sum_ulp += other._sum_ulp
        self._differing += other._differing
        self._nonfinite += other._nonfinite
        self.size += other.size

    def metrics(self) -> dict[str, float | int]:
        size = max(self.size, 1)
        return {
            **self._largest,
            "mean_ulp": self._sum_ulp / size,
            "mismatch": self._differing / size,
            "nonfinite_mismatch": self._nonfinite,
        }


def _rows(actual: AnyArray, expected: AnyArray) -> Iterator[_Row]:
    """Of one piece after the other; of the whole by the kernel."""
    layout = float_format(actual.dtype)
    known = kernel.describe(actual, expected, layout)
    if known is not None:
        yield _Row(*known[:3], [known[3]], int(known[4]), 0)
        return
    for values, wanted in blocks(actual, expected, PASS):
        yield _measure(widen(values), widen(wanted), layout)


class _Row(NamedTuple):
    max_abs: float
    max_rel: float
    max_ulp: float
    sums_ulp: list[float]
    differing: int
    nonfinite: int


def _measure(actual: AnyArray, expected: AnyArray, layout: FloatFormat) -> _Row:
    if "c" in (actual.dtype.kind, expected.dtype.kind):
        real = _compare(actual.real, expected.real, layout)
        imag = _compare(actual.imag, expected.imag, layout)
        gap, distance = np.hypot(real[0], imag[0]), np.maximum(real[1], imag[1])
        differs = real[2] | imag[2]
    else:
        gap, distance, differs = _compare(actual, expected, layout)
    max_abs = float(gap.max())
    nonfinite = 0
    if not np.isfinite(max_abs):
        nonfinite = int(np.count_nonzero(np.isinf(gap) & ~(np.isfinite(actual) & np.isfinite(expected))))
    magnitude = np.abs(expected)
    if not magnitude.all():
        magnitude = np.where(magnitude == 0, np.inf, magnitude)
    ratio = gap / magnitude
    largest = float(ratio.max())
    if np.isnan(largest):
        # NaN comes from NaN or inf on either side, where the gap is 0 or inf already.
        largest = float(np.where(np.isnan(ratio), gap, ratio).max())
    return _Row(
        max_abs,
        largest,
        float(distance.max()),
        [float(distance[start : start + BLOCK].sum()) for start in range(0, distance.size, BLOCK)],
        int(np.count_nonzero(differs)),
        nonfinite,
    )


def _compare(
    actual: Float64Array, expected: Float64Array, layout: FloatFormat
) -> tuple[Float64Array, Float64Array, BoolArray]:
    """For real values: the absolute distance, the distance in ULP, and where the reference is not correctly rounded."""
    gap = np.abs(actual - expected)
    if gap.max() == 0.0:
        # The dtype holds the very reference.
        return gap, gap, np.zeros(gap.shape, dtype=bool)
    spacing = layout.spacing(expected)
    rounded = round_to_spacing(expected, spacing)
    distance = gap / spacing
    if np.isfinite(gap.max()):
        # No actual is infinite here, so a rounded value beyond the largest finite one differs.
        return gap, distance, actual != rounded
    nonfinite, penalty = nonfinite_distance(actual, expected, layout)
    differs = ~alike(actual, layout.overflowed(rounded))
    return np.where(nonfinite, penalty, gap), np.where(nonfinite, penalty, distance), differs


def _largest_difference(actual: AnyArray, expected: AnyArray) -> float | int:
    common = np.result_type(actual, expected)
    if common.kind in "iub":
        # Differences wrap in 64 bits to their true value, which float64 would round.
        high, low = np.maximum(actual, expected), np.minimum(actual, expected)
        return int((high.astype(np.uint64) - low.astype(np.uint64)).max())
    with np.errstate(invalid="ignore"):
        gap = np.abs(widen(actual) - widen(expected))
    return float(np.where(np.isnan(gap), np.inf, gap).max())


def worst(score: npt.ArrayLike, k: int = 5) -> tuple[tuple[int, ...], ...]:
    """The indices of the k largest scores, the largest first and equal ones in order. NaN counts above inf."""
    scores = np.asarray(score)
    flat = widen(scores).reshape(-1)
    count = min(k, flat.size)
    if count == 0:
        return ()
    least = np.partition(flat, flat.size - count)[flat.size - count]
    if np.isnan(least):
        chosen = np.flatnonzero(np.isnan(flat))[:count]
    else:
        above = np.flatnonzero(~(flat <= least))
        chosen = np.concatenate((above, np.flatnonzero(flat == least)[: count - above.size]))
    ranked = sorted(chosen.tolist(), key=lambda index: (not np.isnan(flat[index]), -flat[index], index))
    return tuple(tuple(int(axis) for axis in np.unravel_index(index, scores.shape)) for index in ranked)


class RelativeRmse(NamedTuple):
    """value: sqrt(sum |a - r|**2 / sum |r|**2) over the elements that are finite on both sides; 0 where none errs, inf
    where only zeros are expected and one errs. Never NaN.

    carriers: how many elements the reference's RMS is made of, (sum |r|**2)**2 / sum |r|**4 (the participation ratio):
    all of them where they are equal, 1 where one is much larger than all others, 0 where all are zero.
    """

    value: float
    carriers: float


def relative_rmse(actual: AnyArray, expected: AnyArray) -> RelativeRmse:
    """The relative RMSE of two arrays of one shape."""
    largest = max((float(np.abs(wanted).max(initial=0.0)) for _, wanted in _finite(actual, expected)), default=0.0)
    # A power of 2 keeps squares from overflow and underflow, and rounds nothing.
    scale = math.ldexp(1.0, -max(math.frexp(largest)[1], -1020)) if largest else 1.0
    error = second = fourth = 0.0
    with np.errstate(over="ignore"):
        for values, wanted in _finite(actual, expected):
            scaled = wanted * scale
            error += _total(_squares(values * scale - scaled))
            squares = _squares(scaled)
            second += _total(squares)
            fourth += float(np.vdot(squares, squares))
    carriers = second * second / fourth if fourth else 0.0
    if error == 0:
        return RelativeRmse(0.0, carriers)
    return RelativeRmse(math.sqrt(error / second) if second else math.inf, carriers)


def _finite(actual: AnyArray, expected: AnyArray) -> Iterator[tuple[AnyArray, AnyArray]]:
    for first, second in blocks(actual, expected):
        values, wanted = widen(first), widen(second)
        finite = np.isfinite(values) & np.isfinite(wanted)
        yield (values, wanted) if finite.all() else (values[finite], wanted[finite])


def _squares(values: AnyArray) -> AnyArray:
    return values.real**2 + values.imag**2 if values.dtype.kind == "c" else values * values


def _total(values: AnyArray) -> float:
    return float(values.sum())
