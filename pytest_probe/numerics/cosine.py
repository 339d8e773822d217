"""Sums of products over blocks, and the angle between two vectors from them.

It is kept as 1 - cosine, so that near vectors differ by more than the last digit.
"""

from __future__ import annotations

import math

import numpy as np

from pytest_probe.numerics.arrays import blocks
from pytest_probe.numerics.dtypes import AnyArray, Float64Array, widen

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
        tops = [max(top, float(np.abs(side).max(initial=0.0))) for top, side in zip(tops, _finite(*pair), strict=True)]
    # Of subnormal numbers the power itself would overflow.
    scales = [math.ldexp(1.0, -max(math.frexp(top)[1], -1020)) if top else 1.0 for top in tops]
    found = Vectors()
    for pair in blocks(actual, expected, size):
        a, b = (side * scale for side, scale in zip(_finite(*pair), scales, strict=True))
        found.add(a, b, a - b)
    return found


def _finite(a: AnyArray, b: AnyArray) -> tuple[Float64Array, Float64Array]:
    a, b = widen(a), widen(b)
    both = np.isfinite(a) & np.isfinite(b)
    kind = np.result_type(a, b)
    first, second = (np.ascontiguousarray(np.where(both, side, 0.0), dtype=kind).view(np.float64) for side in (a, b))
    return first, second
