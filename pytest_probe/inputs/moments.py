"""Random numbers that follow recorded statistics: floats with given extremes, mean and norm, and exact choices.

All functions take a Generator and give new one-dimensional arrays; `drawn` gives floats that are computed later where
they are many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pytest_probe.inputs.draws import (
    LARGE,
    Constant,
    Draw,
    Numbers,
    Uniforms,
    by_blocks,
    constant,
    is_counted,
    whole,
    written,
)
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, Float64Array

# Up to here every value is a draw of its own; beyond, values are interpolated between the order statistics of a
# smaller draw, which takes a fifth of the time of a Beta variate each.
_DIRECT = 128
# Draws in that table at most. Chosen: drawing it then costs little against interpolating.
_LARGEST_TABLE = 4096
# Samples are brought this near to the wanted mean and variance, relatively; 16-bit statistics are no better.
_NEAR = 2e-3
# Nearer to the minimum is the minimum: a law that piles up at zero has numbers whose squares no dtype holds, where
# tensors have zeros.
_LEAST = 2.0**-48
# Of large tensors the means of so many powers are taken in one pass: the fourth of a map of the third degree.
_POWERS = 12
# Cautious relative error of recorded statistics: two roundings of the recorded dtype, and summation in float32.
_SUMMATION = 2e-6


class Statistics(NamedTuple):
    """What the numbers shall have: extremes, mean and 2-norm (None: unknown), all within the relative error `error`."""

    low: float
    high: float
    mean: float | None = None
    norm: float | None = None
    error: float = _SUMMATION


class _Moments(NamedTuple):
    """Mean and variance of numbers in [0, 1]; `split` where they can only be zeros and ones.

    near is how far off the mean may be.
    """

    mean: float
    variance: float
    near: float = 1e-3
    split: bool = False


def floats(rng: np.random.Generator, count: int, wanted: Statistics) -> Float64Array:
    """Float64 numbers of the wanted statistics, both extremes among them at random positions.

    A Beta distribution on [low, high] by moments; where none fits (two values, a constant, two elements), the obvious
    law. A single number is the maximum.
    """
    return whole(drawn(rng, count, wanted))


def drawn(rng: np.random.Generator, count: int, wanted: Statistics) -> Numbers:
    """The same; of many, what computes them."""
    if count < 2 or wanted.low == wanted.high:
        return constant(count, wanted.high)
    if count > LARGE and is_counted(rng):
        inner = _many(rng, count - 2, _inner_moments(count, wanted))
        return _Scaled(inner, _extreme_places(rng, count), wanted.low, wanted.high)
    unit = np.empty(count)
    unit[:2] = 0.0, 1.0
    if count > 2:
        unit[2:] = _inner(rng, count - 2, _inner_moments(count, wanted))
        unit[unit < _LEAST] = 0.0
    _scatter_extremes(rng, unit)
    return _stretch(unit, wanted.low, wanted.high)


def choice(rng: np.random.Generator, count: int, chosen: int) -> BoolArray:
    """`count` booleans, of which exactly `chosen`, anywhere, are True. Raises nothing: chosen is kept within range."""
    chosen = min(max(chosen, 0), count)
    if chosen in (0, count):
        return np.full(count, chosen > 0)
    mask = written(count, "bool", lambda size: rng.random(size) < chosen / count)
    # Each is drawn for itself; only what is too many or too few is then drawn without replacement.
    surplus = int(np.count_nonzero(mask)) - chosen
    if surplus:
        among = chosen + surplus if surplus > 0 else count - chosen - surplus
        ranks = rng.choice(among, abs(surplus), replace=False, shuffle=False)
        mask[_places(mask, surplus > 0, ranks)] = surplus < 0
    return mask


def _places(mask: BoolArray, value: bool, ranks: AnyArray) -> AnyArray:
    """Where the elements of a value stand that have these ranks among those of that value."""
    if mask.size <= BLOCK:
        return np.flatnonzero(mask if value else ~mask)[ranks]
    ordered = np.sort(ranks)
    found, before, first = [], 0, 0
    for start in range(0, mask.size, BLOCK):
        block = mask[start : start + BLOCK]
        beyond = before + int(np.count_nonzero(block == value))
        last = int(np.searchsorted(ordered, beyond))
        if last > first:
            found.append(start + np.flatnonzero(block == value)[ordered[first:last] - before])
        before, first = beyond, last
    return np.concatenate(found)


def integers(rng: np.random.Generator, count: int, low: int, high: int, dtype: str = "") -> AnyArray:
    """Integers uniform in [low, high], both among them, in a dtype; "": int64, or uint64 where high asks for it."""
    own = "uint64" if high > np.iinfo(np.int64).max else "int64"
    values = written(count, dtype or own, lambda size: rng.integers(low, high, size, dtype=own, endpoint=True))
    if count == 1:
        values[0] = high
    elif count and low != high:
        first = int(rng.integers(count))
        second = (first + 1 + int(rng.integers(count - 1))) % count
        values[first], values[second] = low, high
    return values


def _inner_moments(count: int, wanted: Statistics) -> _Moments:
    """Moments of the numbers without the two extremes, on the unit interval. Recorded statistics may contradict."""
    scale = max(abs(wanted.low), abs(wanted.high))
    low, high = wanted.low / scale, wanted.high / scale
    span, inner = high - low, count - 2
    if wanted.mean is None:
        return _Moments(0.5, _usual_variance(count, 0.25))
    mean = wanted.mean / scale
    middle = min(max((count * mean - low - high) / inner, low), high)
    unit_mean = (middle - low) / span
    room = unit_mean * (1 - unit_mean)
    mean_error = wanted.error * abs(mean) * count / inner / span
    # The mean is an extreme, as exactly as it is known: all but the two extremes are there.
    if mean_error < 1e-3 and min(unit_mean, 1 - unit_mean) <= 2 * mean_error:
        return _Moments(float(round(unit_mean)), 0.0, split=True)
    near = _NEAR * abs(mean) / span + 1e-6
    if wanted.norm is None:
        return _Moments(unit_mean, _usual_variance(count, room), near)
    squares = (wanted.norm / scale) ** 2
    variance = ((squares - low * low - high * high) / inner - middle * middle) / span**2
    slack = 2 * wanted.error * (squares / count + mean * mean) * count / inner / span**2
    return _plausible(_Moments(unit_mean, variance, near), slack, _usual_variance(count, room))


def _plausible(found: _Moments, slack: float, usual: float) -> _Moments:
    """The moments with a possible variance: as found, or the usual one within the error of that, or the variance of
    zeros and ones."""
    room = found.mean * (1 - found.mean)
    # As large as a variance can be: zeros and ones only, as in a mask.
    if slack <= room / 8 and found.variance >= (1 - 1e-4) * room - slack:
        return found._replace(variance=room, split=True)
    # The norm gives the variance with an error below half of it, and is used.
    if slack <= found.variance / 2:
        return found
    if found.variance + slack < 0:
        return found._replace(variance=usual)
    return found._replace(variance=min(max(usual, found.variance - slack), found.variance + slack, room))


def _usual_variance(count: int, room: float) -> float:
    """The variance, on the unit interval, of as many normal numbers that span it."""
    return min(1 / (8 * math.log(count)), room / 2)


def _inner(rng: np.random.Generator, count: int, moments: _Moments) -> Float64Array:
    if moments.split:
        return choice(rng, count, round(moments.mean * count)).astype(np.float64)
    if _is_constant(count, moments):
        return np.full(count, moments.mean)
    values = rng.beta(*_exponents(moments), count) if count <= _DIRECT else _interpolated(rng, count, moments)
    _fit(_Sample(values), moments)
    return values


def _interpolated(rng: np.random.Generator, count: int, moments: _Moments) -> Float64Array:
    table, place = _table(rng, count, moments), np.empty(count)
    steps = table[1:] - table[:-1]
    for start in range(0, count, BLOCK):
        part = place[start : start + BLOCK]
        rng.random(out=part)
        _interpolate(part, table, steps)
    return place


def _interpolate(part: Float64Array, table: Float64Array, steps: Float64Array) -> None:
    """Numbers of a table's distribution in place of uniform ones."""
    part *= steps.size
    cell = part.astype(np.intp)
    part -= cell
    part *= steps.take(cell)
    part += table.take(cell)


def _many(rng: np.random.Generator, count: int, moments: _Moments) -> Draw:
    """The same numbers, computed later."""
    if moments.split:
        return _Split(choice(rng, count, round(moments.mean * count)))
    if _is_constant(count, moments):
        return Constant(count, moments.mean)
    curve = _Curve(count, _table(rng, count, moments), rng)
    _fit(curve, moments)
    return curve


def _is_constant(count: int, moments: _Moments) -> bool:
    return count == 1 or moments.variance <= 1e-12 * moments.mean * (1 - moments.mean)


def _exponents(moments: _Moments) -> tuple[float, float]:
    """Those of the Beta law of these moments."""
    weight = moments.mean * (1 - moments.mean) / moments.variance - 1
    return max(moments.mean * weight, 1e-3), max((1 - moments.mean) * weight, 1e-3)


def _table(rng: np.random.Generator, count: int, moments: _Moments) -> Float64Array:
    """Order statistics that numbers are interpolated between: 0, those of a 16th of the numbers, 1. They are as smooth
    as the law."""
    size = min(max(_DIRECT, count // 16), _LARGEST_TABLE)
    table = np.empty(size + 2)
    table[0], table[-1] = 0.0, 1.0
    table[1:-1] = rng.beta(*_exponents(moments), size)
    table.sort()
    return table


class _Sample:
    """Numbers in [0, 1] whose moments are brought to wanted ones, all in memory."""

    def __init__(self, values: Float64Array) -> None:
        self._values = values

    def moments(self) -> tuple[float, float]:
        """Mean and mean square."""
        count = self._values.size
        return float(np.add.reduce(self._values)) / count, float(self._values.dot(self._values)) / count

    def room(self) -> tuple[float, float]:
        """The means of t t (1 - t) and t t t (1 - t)."""
        self._room = _room(self._values)
        count, work = self._values.size, self._values * self._room
        return float(np.add.reduce(work)) / count, float(work.dot(self._values)) / count

    def bend(self, p: float, q: float) -> None:
        """Map them by t + t (1 - t) (p + q t), after `room`."""
        _bend(self._values, self._room, p, q)

    def shift(self, mean: float, scale: float, wanted: float) -> None:
        """Move them by a mean, scale them, move them to the wanted one."""
        _shift(self._values, mean, scale, wanted)


class _Curve(Draw):
    """The same for numbers that are computed when they are asked for: interpolated in a table, then mapped.

    What the means of their powers are after one map more follows from higher powers, so that only every second map
    needs a pass over all numbers.
    """

    def __init__(self, count: int, table: Float64Array, rng: np.random.Generator) -> None:
        self.size, self._table, self._steps = count, table, table[1:] - table[:-1]
        self._uniforms = Uniforms(rng, count)
        self._maps: list[Callable[[Float64Array], None]] = []
        self._means: Float64Array | None = None
        self._since = [1.0]  # the map since then: coefficients of t, t t and t t t

    def part(self, start: int, stop: int) -> Float64Array:
        values = np.empty(stop - start)
        self._uniforms.fill(start, values)
        _interpolate(values, self._table, self._steps)
        for map_values in self._maps:
            map_values(values)
        return values

    def moments(self) -> tuple[float, float]:
        if self._means is None:
            self._means = np.sum(by_blocks(self.size, self._power_sums), axis=0) / self.size
            self._since = [1.0]
        return self._mean(1), self._mean(2)

    def room(self) -> tuple[float, float]:
        return self._mean(2) - self._mean(3), self._mean(3) - self._mean(4)

    def bend(self, p: float, q: float) -> None:
        self._maps.append(lambda values: _bend(values, _room(values), p, q))
        # No power of two maps is known.
        self._since, self._means = ([1 + p, q - p, -q], self._means) if self._since == [1.0] else ([1.0], None)

    def shift(self, mean: float, scale: float, wanted: float) -> None:
        self._maps.append(lambda values: _shift(values, mean, scale, wanted))
        self._means = None

    def _mean(self, power: int) -> float:
        assert self._means is not None
        factors = self._since
        for _ in range(power - 1):
            factors = [0.0, *np.convolve(factors, self._since)]
        return float(np.sum(factors * self._means[: len(factors)]))

    def _power_sums(self, start: int, stop: int) -> list[float]:
        """By NumPy's own sums: those of the library that `dot` calls hang on the machine and on threads."""
        values = self.part(start, stop)
        power, sums = values.copy(), [float(np.add.reduce(values))]
        for _ in range(_POWERS - 1):
            power *= values
            sums.append(float(np.add.reduce(power)))
        return sums


class _Split(Draw):
    """Zeros and ones."""

    def __init__(self, ones: BoolArray) -> None:
        self.size, self._ones = ones.size, ones

    def part(self, start: int, stop: int) -> Float64Array:
        return self._ones[start:stop].astype(np.float64)


class _Scaled(Draw):
    """Numbers between two extremes, which stand at two places, from numbers in [0, 1]: those places' own numbers are
    the first two, and all others follow in their order."""

    def __init__(self, inner: Draw, places: tuple[int, int], low: float, high: float) -> None:
        self.size, self._inner, self._low, self._high = inner.size + 2, inner, low, high
        first, second = places
        moved = [float(inner.part(place - 2, place - 1)[0]) for place in places]
        self._single = ((0, moved[0]), (1, moved[1]), (first, 0.0), (second, 1.0))

    def part(self, start: int, stop: int) -> Float64Array:
        unit = self._inner.part(max(start, 2) - 2, max(stop, 2) - 2)
        if start < 2:
            unit = np.concatenate((np.zeros(min(stop, 2) - start), unit))
        for place, number in self._single:
            if start <= place < stop:
                unit[place - start] = number
        unit[unit < _LEAST] = 0.0
        return _stretch(unit, self._low, self._high)


def _fit(sample: _Sample | _Curve, wanted: _Moments) -> None:
    """Bring mean and variance to the wanted ones: by a smooth map, which keeps order and ends; where that cannot reach
    the moments, clipping comes near."""
    if not _bent_to(sample, wanted):
        _shifted_to(sample, wanted)


def _bent_to(sample: _Sample | _Curve, wanted: _Moments, passes: int = 6) -> bool:
    """Map [0, 1] smoothly onto itself; False where that does not bring the wanted moments.

    The map t + t (1 - t) (p + q t) leaves the ends alone and is increasing for small p and q; Newton's method finds
    them from sample moments.
    """
    for _ in range(passes):
        mean, square = sample.moments()
        miss, miss_square = wanted.mean - mean, wanted.variance + wanted.mean**2 - square
        if abs(miss) <= wanted.near and abs(wanted.variance - square + mean * mean) <= _NEAR * wanted.variance:
            return True
        zeroth, (first, second) = mean - square, sample.room()
        determinant = zeroth * second - first * first
        if determinant <= 1e-12 * zeroth * second:
            return False
        p = (miss * second - miss_square / 2 * first) / determinant
        q = (zeroth * miss_square / 2 - first * miss) / determinant
        # A longer step would fold the interval over itself.
        limit = 0.8 / max(abs(p), abs(p + q), 0.8)
        sample.bend(p * limit, q * limit)
    return False


def _shifted_to(sample: _Sample | _Curve, wanted: _Moments, passes: int = 8) -> None:
    """Shift, scale and clip: for the few and the heavy-tailed."""
    for _ in range(passes):
        mean, square = sample.moments()
        variance = square - mean * mean
        close = abs(mean - wanted.mean) <= wanted.near and abs(variance - wanted.variance) <= _NEAR * wanted.variance
        if close or variance <= 0:
            return
        sample.shift(mean, math.sqrt(wanted.variance / variance), wanted.mean)


def _room(values: Float64Array) -> Float64Array:
    """t (1 - t)."""
    room = 1 - values
    room *= values
    return room


def _bend(values: Float64Array, room: Float64Array, p: float, q: float) -> None:
    work = values * q
    work += p
    work *= room
    values += work


def _shift(values: Float64Array, mean: float, scale: float, wanted: float) -> None:
    values -= mean
    values *= scale
    values += wanted
    np.clip(values, 0.0, 1.0, out=values)


def _extreme_places(rng: np.random.Generator, count: int) -> tuple[int, int]:
    first = 2 + int(rng.integers(count - 2))
    return first, 2 + (first - 1 + int(rng.integers(count - 3))) % (count - 2)


def _scatter_extremes(rng: np.random.Generator, values: Float64Array) -> None:
    """Move the first two numbers to random positions; the others are in random order already."""
    count = values.size
    if count < 8:
        rng.shuffle(values)
        return
    first, second = _extreme_places(rng, count)
    low, high = values[0], values[1]
    values[0], values[1] = values[first], values[second]
    values[first], values[second] = low, high


def _stretch(unit: Float64Array, low: float, high: float) -> Float64Array:
    """[0, 1] onto [low, high], in place and exact at both ends, also where high - low overflows."""
    if math.isinf(high - low):
        return np.asarray(low * (1 - unit) + high * unit)
    ends = unit == 1.0
    unit *= high - low
    unit += low
    np.minimum(unit, high, out=unit)
    unit[ends] = high
    return unit
