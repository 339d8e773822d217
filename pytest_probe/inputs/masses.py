"""Values that stand many times in a tensor: zeros, a most frequent value, whole rows of one value.

Where a dump tells their shares, generated numbers have them; the other numbers then have what Mean and Norm leave.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from pytest_probe.inputs import moments
from pytest_probe.inputs.moments import Statistics
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import BoolArray, Float64Array

# Shares may come of a sample: where so much is zeros and the mode, the mean tells better how many each are.
_TWO_VALUES = 0.95


def floats(spec: TensorSpec, rng: np.random.Generator, wanted: Statistics) -> Float64Array:
    """Float64 numbers of the wanted statistics, shape (spec.size,), with the masses that the spec tells."""
    if not (spec.zeros or spec.mode or spec.constant_rows) or wanted.low == wanted.high:
        return moments.floats(rng, spec.size, wanted)
    rows = constant_rows(spec, rng)
    width = spec.size // rows.size
    if rows.all():
        norm = None if wanted.norm is None else wanted.norm / math.sqrt(width)
        return np.repeat(moments.floats(rng, rows.size, wanted._replace(norm=norm)), width)
    values = np.empty((rows.size, width))
    of_rows = _row_values(spec, rng, wanted, int(np.count_nonzero(rows)))
    values[rows] = of_rows[:, None]
    left = _Left.of(spec.size, wanted).without(of_rows, width)
    values[~rows] = _others(spec, rng, left, of_rows, width).reshape(-1, width)
    return values.reshape(-1)


def constant_rows(spec: TensorSpec, rng: np.random.Generator) -> BoolArray:
    """Which rows, along the last dimension, have one value; a tensor of one dimension has one row, which has not."""
    width = spec.shape[-1] if len(spec.shape) > 1 and spec.shape[-1] > 1 else spec.size
    count, share = spec.size // width, 0.0 if spec.constant_rows is None else spec.constant_rows[0]
    if share >= 1:
        return np.ones(count, bool)
    return moments.choice(rng, count, min(max(round(share * count), share > 0), count - 1))


class _Left(Struct, frozen=True):
    """Numbers still to be made: how many, and what they add up to. None: unknown."""

    count: int
    wanted: Statistics
    total: float | None
    squares: float | None

    @classmethod
    def of(cls, count: int, wanted: Statistics) -> _Left:
        total = None if wanted.mean is None else wanted.mean * count
        return cls(count, wanted, total, None if wanted.norm is None else wanted.norm**2)

    def without(self, values: Float64Array, copies: int) -> _Left:
        """What is left when so many copies of each value are made."""
        total = None if self.total is None else self.total - copies * float(values.sum())
        squares = None if self.squares is None else self.squares - copies * float(values.dot(values))
        return _Left(self.count - copies * values.size, self.wanted, total, squares)

    def statistics(self, whole: _Left) -> Statistics:
        """Of the numbers left of the whole. What is known of the whole to some digits is known of them to fewer."""
        mean = None if self.total is None else self.total / self.count
        norm = None if self.squares is None else math.sqrt(max(self.squares, 0.0))
        lost = max(_ratio(whole.total, self.total), _ratio(whole.squares, self.squares), 1.0)
        return self.wanted._replace(mean=mean, norm=norm, error=self.wanted.error * lost)


def _ratio(whole: float | None, part: float | None) -> float:
    return abs(whole / part) if whole and part else 1.0


def _row_values(spec: TensorSpec, rng: np.random.Generator, wanted: Statistics, count: int) -> Float64Array:
    shared = None if spec.constant_rows is None else spec.constant_rows[1]
    if shared is not None:
        # A row of what is not finite is made by those who make such values.
        return np.full(count, min(max(shared, wanted.low), wanted.high))
    middle = (wanted.low + wanted.high) / 2 if wanted.mean is None else wanted.mean
    square = middle**2 if wanted.norm is None else wanted.norm**2 / spec.size
    spread = math.sqrt(max(square - middle**2, 0.0)) or (wanted.high - wanted.low) / 8
    return np.clip(rng.normal(middle, spread, count), wanted.low, wanted.high)


def _others(spec: TensorSpec, rng: np.random.Generator, left: _Left, rows: Float64Array, width: int) -> Float64Array:
    """The elements outside of constant rows."""
    counts = {0.0: spec.zeros or 0.0, **dict([spec.mode] if spec.mode else [])}
    extremes = (left.wanted.low, left.wanted.high)
    if sum(counts.values()) >= _TWO_VALUES and set(counts) == set(extremes) and left.total is not None:
        return moments.floats(rng, left.count, left.statistics(left))
    values, free = np.empty(left.count), np.ones(left.count, bool)
    rest = left
    for value, share in counts.items():
        wished = round(share * spec.size) - width * int(np.count_nonzero(rows == value))
        # The rest has both extremes.
        count = min(wished - (value in extremes), rest.count - 2)
        if count > 0 and extremes[0] <= value <= extremes[1]:
            places = np.flatnonzero(free)
            taken = places[moments.choice(rng, places.size, count)]
            values[taken], free[taken] = value, False
            rest = rest.without(np.array([value]), count)
    values[free] = moments.floats(rng, rest.count, rest.statistics(left))
    return values
