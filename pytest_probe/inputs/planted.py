"""Zeros and equal numbers, which faults hide behind and a continuous law never gives.

`supposed` says what Min, Max, Mean and Norm imply where a dump has no more. `plant` puts a few zeros and ties into each
floating tensor of some size whose API has no pole there: after the draw, in place of numbers that are near already, so
that all other numbers stay the same.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from pytest_probe.inputs.draws import Draw, Numbers, Replaced, sum_of_squares, whole
from pytest_probe.inputs.generated import draw, generate, kind_of
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import AnyArray, Float64Array

_LEAST = 64  # elements from which on a few zeros and ties change no statistic by a percent
_WINDOW = 32  # elements among which places are looked for
_LONGEST = 4096  # elements of a row among which the largest are looked for
# A share of the largest number: a smaller number may become zero; a larger one is a value of its own, as -1 and 1 are.
_SMALL = 1 / 8
# The most zeros that are planted in a window.
_ZEROS = 3
# Mean squared over mean square of normal numbers without their signs. What relu leaves of normal numbers has this,
# times the share of them that are not zero.
_HALF_NORMAL = 2 / math.pi
# The share by which the sum of squares may grow where the second number of a row becomes its largest.
_GROWTH = 4e-3
# Mean squared over mean square of an exponential law; no usual law of numbers without a sign has less.
_ONE_SIDED = 0.5
# Share of the elements: from so many zeros on, some fill whole rows, as padding does.
_PADDED = 0.25
_ROWS_PADDED = 1 / 32


def supposed(spec: TensorSpec) -> TensorSpec:
    """The tensor with the share of zeros that its statistics imply, where the dump has no share.

    An extreme that is exactly zero, and a mean smaller against the norm than numbers of one sign have without zeros: as
    many zeros as leave normal numbers without their signs. Where they are many, some of them fill whole rows.
    """
    share = _zeros(spec) if spec.zeros is None else 0.0
    if share <= 0:
        return spec
    width = spec.shape[-1] if len(spec.shape) > 1 else spec.size
    rows = spec.size // width
    padded = rows >= 8 and width > 1 and share >= _PADDED
    return replace(spec, zeros=share, constant_rows=(max(_ROWS_PADDED, 1 / rows), 0.0) if padded else None)


def _zeros(spec: TensorSpec) -> float:
    known = (spec.min, spec.max, spec.mean, spec.norm)
    if spec.size < _LEAST or any(number is None or not math.isfinite(number) for number in known):
        return 0.0
    low, high, mean, norm = (float(number or 0) for number in known)
    if 0 not in (low, high) or low >= high or not mean or not norm:
        return 0.0
    square, top = norm**2 / spec.size, max(-low, high)
    found = mean**2 / square if square else 1.0
    # Zeros and one other value, which follows from the moments.
    if found >= _ONE_SIDED or square >= 0.99 * abs(mean) * top:
        return 0.0
    # The others, normal without their signs, must stay below the maximum.
    wanted = max(_HALF_NORMAL, square / (abs(mean) * top))
    return max(1 - found / wanted, 0.0) if abs(mean) * wanted / found < top else 0.0


def plant(numbers: Numbers, spec: TensorSpec, rng: np.random.Generator) -> Numbers:
    """Put a few zeros, one of them -0.0 where numbers are negative, and ties into generated floats, in place where they
    are in memory.

    The smallest numbers of a window become the zeros, near ones the ties, and one more number keeps the mean. One tie
    is at the top of a row, where maxima are looked for, unless the norm would grow by it. Extremes stay. Nothing is
    planted into fewer than 64 numbers, numbers of an unknown or infinite range, or equal ones; no zero where the range
    has none.
    """
    low, high = spec.min, spec.max
    if low is None or high is None or spec.size < _LEAST or not -math.inf < low < high < math.inf:
        return numbers
    width = spec.shape[-1] if 8 <= spec.shape[-1] < spec.size else spec.size
    start = int(rng.integers(spec.size // width)) * width
    longest = min(width, _LONGEST)
    end = min(start + max(longest, _WINDOW), spec.size)
    near = numbers.part(start, end) if isinstance(numbers, Draw) else numbers[start:end]
    # As far as the dump gives it.
    known = spec.norm is not None and math.isfinite(spec.norm)
    squares = spec.norm**2 if spec.norm is not None and known else sum_of_squares(numbers)
    gained = _tie_top(near[:longest], (low, high), _GROWTH * squares)
    window = _Window(near[:_WINDOW].tolist(), float(low), float(high))
    window.tie_nearest()
    if low <= 0 <= high:
        window.add_zeros()
    window.keep_total(gained)
    near[:_WINDOW] = window.numbers
    return Replaced(numbers, start, near) if isinstance(numbers, Draw) else numbers


def _tie_top(row: Float64Array, extremes: tuple[float, float], growth: float) -> float:
    """Make the second number of a row its largest, unless squares would grow by more; by how much it grew."""
    first = row.argmax()
    top = float(row[first])
    row[first] = -math.inf
    place = row.argmax()
    second, row[first] = float(row[place]), top
    if second in extremes or abs(top * top - second * second) > growth:
        return 0.0
    row[place] = top
    return top - second


class _Window:
    """Some numbers of a tensor, in Python, where changing single ones costs a third of what it costs in NumPy."""

    def __init__(self, numbers: list[float], low: float, high: float) -> None:
        self.numbers, self._low, self._high = numbers, low, high
        self._total = sum(numbers)
        self._order = sorted(range(len(numbers)), key=numbers.__getitem__)
        self._taken: set[int] = set()

    def _usual(self, place: int) -> bool:
        """Is it neither changed nor an extreme?"""
        return place not in self._taken and self._low < self.numbers[place] < self._high

    def _change(self, place: int, number: float) -> None:
        self.numbers[place] = number
        self._taken.add(place)

    def tie_nearest(self) -> None:
        """Make the three numbers that are nearest to one another equal."""
        usual = [place for place in self._order if self._usual(place)]
        ranked = [self.numbers[place] for place in usual]
        gaps = [last - first for first, last in zip(ranked, ranked[2:], strict=False)]
        if gaps:
            nearest = gaps.index(min(gaps))
            for place in usual[nearest : nearest + 3]:
                self._change(place, ranked[nearest + 1])

    def add_zeros(self) -> None:
        """Make the numbers nearest to zero, where they are near, +0.0 and -0.0."""
        near = [place for place in self._order if abs(self.numbers[place]) < _SMALL * max(-self._low, self._high)]
        near.sort(key=lambda place: abs(self.numbers[place]))
        zeros = [place for place in near[:_ZEROS] if self._usual(place)]
        for place in zeros:
            self._change(place, -0.0 if place == zeros[0] and self._low < 0 else 0.0)

    def keep_total(self, gained: float) -> None:
        """Give a number that has not changed what the others lost, and take from it what was gained elsewhere."""
        count = len(self._order)
        for rank in (5 * count // 8, 3 * count // 8, count // 4):
            place = self._order[rank]
            wanted = self.numbers[place] + self._total - sum(self.numbers) - gained
            if self._usual(place) and self.numbers[place] and self._low < wanted < self._high:
                self.numbers[place] = wanted
                return


def values_like(spec: TensorSpec, rng: np.random.Generator) -> AnyArray:
    """Values with the statistics of a tensor, with zeros and ties as tensors of programs have them."""
    if kind_of(spec.dtype) != "float":
        return generate(spec, rng)
    return whole(plant(draw(supposed(spec), rng), spec, rng)).reshape(spec.shape)
