"""Random numbers that follow recorded statistics: floats with given extremes, mean and norm, and exact choices.

All functions take a Generator and give new one-dimensional arrays; `drawn` gives floats that are computed later where
they are many.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pytest_probe.inputs.curves import LEAST, Curve, Scaled, bend, interpolate, room_of, shift, stretch
from pytest_probe.inputs.draws import (
    LARGE,
    Constant,
    Draw,
    InMemory,
    Numbers,
    Uniforms,
    by_turns,
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
# Times that numbers are shifted, scaled and clipped.
_PASSES = 8
# Numbers that stand for all of a large tensor until its moments are nearly the wanted ones.
_FIRST = 1 << 20
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
        return Scaled(inner, _extreme_places(rng, count), wanted.low, wanted.high)
    unit = np.empty(count)
    unit[:2] = 0.0, 1.0
    if count > 2:
        unit[2:] = _inner(rng, count - 2, _inner_moments(count, wanted))
        unit[unit < LEAST] = 0.0
    # The extremes move to random positions; the others are in random order already.
    if count < 8:
        rng.shuffle(unit)
    else:
        first, second = _extreme_places(rng, count)
        unit[:2] = unit[first], unit[second]
        unit[first], unit[second] = 0.0, 1.0
    return stretch(unit, wanted.low, wanted.high)


def choice(rng: np.random.Generator, count: int, chosen: int) -> BoolArray:
    """`count` booleans, of which exactly `chosen`, anywhere, are True. Raises nothing: chosen is kept within range."""
    chosen = min(max(chosen, 0), count)
    if chosen in (0, count):
        return np.full(count, chosen > 0)
    mask = _below(rng, count, chosen / count)
    # Each is drawn for itself; only what is too many or too few is then drawn without replacement.
    surplus = int(np.count_nonzero(mask)) - chosen
    if surplus:
        among = chosen + surplus if surplus > 0 else count - chosen - surplus
        ranks = rng.choice(among, abs(surplus), replace=False, shuffle=False)
        mask[_places(mask, surplus > 0, ranks)] = surplus < 0
    return mask


def _below(rng: np.random.Generator, count: int, share: float) -> BoolArray:
    """Which of the next uniform numbers are below a share."""
    if count <= LARGE or not is_counted(rng):
        return written(count, "bool", lambda size: rng.random(size) < share)
    uniforms, mask = Uniforms(rng, count), np.empty(count, bool)
    by_turns(count, lambda start, stop: uniforms.below(share, start, mask[start:stop]))
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
        interpolate(part, table, steps)
    return place


def _many(rng: np.random.Generator, count: int, moments: _Moments) -> Draw:
    """The same numbers, computed later."""
    if moments.split:
        return InMemory(choice(rng, count, round(moments.mean * count)))
    if _is_constant(count, moments):
        return Constant(count, moments.mean)
    curve = Curve(count, _table(rng, count, moments), rng)
    # Heavy tails need up to five passes: all but the last one or two are made over the first numbers.
    for first in (_FIRST, count) if count > _FIRST else (count,):
        curve.look_at(first)
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
        self._room = room_of(self._values)
        count, work = self._values.size, self._values * self._room
        return float(np.add.reduce(work)) / count, float(work.dot(self._values)) / count

    def bend(self, p: float, q: float) -> None:
        """Map them by t + t (1 - t) (p + q t), after `room`."""
        bend(self._values, self._room, p, q)

    def shift(self, mean: float, scale: float, wanted: float) -> None:
        """Move them by a mean, scale them, move them to the wanted one."""
        shift(self._values, mean, scale, wanted)


def _fit(sample: _Sample | Curve, wanted: _Moments) -> None:
    """Bring mean and variance to the wanted ones: by a smooth map, which keeps order and ends; where that cannot reach
    the moments, clipping comes near."""
    if _bent_to(sample, wanted):
        return
    # Shift, scale and clip: for the few and the heavy-tailed.
    for _ in range(_PASSES):
        mean, square = sample.moments()
        variance = square - mean * mean
        close = abs(mean - wanted.mean) <= wanted.near and abs(variance - wanted.variance) <= _NEAR * wanted.variance
        if close or variance <= 0:
            return
        sample.shift(mean, math.sqrt(wanted.variance / variance), wanted.mean)


def _bent_to(sample: _Sample | Curve, wanted: _Moments, passes: int = 6) -> bool:
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


def _extreme_places(rng: np.random.Generator, count: int) -> tuple[int, int]:
    first = 2 + int(rng.integers(count - 2))
    return first, 2 + (first - 1 + int(rng.integers(count - 3))) % (count - 2)
