"""Random numbers that follow recorded statistics: floats with given extremes, mean and norm, and exact choices.

All functions take a Generator and give new one-dimensional arrays.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

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
    if count < 2 or wanted.low == wanted.high:
        return np.full(count, wanted.high)
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
    mask = rng.random(count) < chosen / count
    # Each is drawn for itself; only what is too many or too few is then drawn without replacement.
    surplus = int(np.count_nonzero(mask)) - chosen
    if surplus:
        places = np.flatnonzero(mask if surplus > 0 else ~mask)
        mask[places[rng.choice(places.size, abs(surplus), replace=False, shuffle=False)]] = surplus < 0
    return mask


def integers(rng: np.random.Generator, count: int, low: int, high: int) -> AnyArray:
    """Integers uniform in [low, high], both among them; int64, or uint64 where high asks for it."""
    dtype = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    values = rng.integers(low, high, count, dtype=dtype, endpoint=True)
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
    room = moments.mean * (1 - moments.mean)
    if count == 1 or moments.variance <= 1e-12 * room:
        return np.full(count, moments.mean)
    weight = room / moments.variance - 1
    values = _beta(rng, count, max(moments.mean * weight, 1e-3), max((1 - moments.mean) * weight, 1e-3))
    # The smooth map keeps order and ends; where it cannot reach the moments, clipping comes near.
    if not _bend(values, moments):
        _shift(values, moments)
    return values


def _beta(rng: np.random.Generator, count: int, alpha: float, beta: float) -> Float64Array:
    if count <= _DIRECT:
        return rng.beta(alpha, beta, count)
    # A 16th of the numbers: their order statistics are as smooth as the law.
    size = min(max(_DIRECT, count // 16), _LARGEST_TABLE)
    table = np.empty(size + 2)
    table[0], table[-1] = 0.0, 1.0
    table[1:-1] = rng.beta(alpha, beta, size)
    table.sort()
    steps, place = table[1:] - table[:-1], np.empty(count)
    for start in range(0, count, BLOCK):
        part = place[start : start + BLOCK]
        rng.random(out=part)
        part *= size + 1
        cell = part.astype(np.intp)
        part -= cell
        part *= steps.take(cell)
        part += table.take(cell)
    return place


def _bend(values: Float64Array, wanted: _Moments, passes: int = 6) -> bool:
    """Bring mean and variance to the wanted ones by a smooth map of [0, 1] onto itself; False where it cannot.

    The map t + t (1 - t) (p + q t) leaves the ends alone and is increasing for small p and q; Newton's method finds
    them from sample moments.
    """
    count = values.size
    for _ in range(passes):
        mean, square = float(np.add.reduce(values)) / count, float(values.dot(values)) / count
        miss, miss_square = wanted.mean - mean, wanted.variance + wanted.mean**2 - square
        if abs(miss) <= wanted.near and abs(wanted.variance - square + mean * mean) <= _NEAR * wanted.variance:
            return True
        room = 1 - values
        room *= values
        work = values * room
        zeroth, first, second = mean - square, float(np.add.reduce(work)) / count, float(work.dot(values)) / count
        determinant = zeroth * second - first * first
        if determinant <= 1e-12 * zeroth * second:
            return False
        p = (miss * second - miss_square / 2 * first) / determinant
        q = (zeroth * miss_square / 2 - first * miss) / determinant
        # A longer step would fold the interval over itself.
        limit = 0.8 / max(abs(p), abs(p + q), 0.8)
        np.multiply(values, q * limit, out=work)
        work += p * limit
        work *= room
        values += work
    return False


def _shift(values: Float64Array, wanted: _Moments, passes: int = 8) -> None:
    """Bring mean and variance near the wanted ones by shift, scale and clip: for the few and the heavy-tailed."""
    for _ in range(passes):
        mean = values.sum() / values.size
        variance = values.dot(values) / values.size - mean * mean
        close = abs(mean - wanted.mean) <= wanted.near and abs(variance - wanted.variance) <= _NEAR * wanted.variance
        if close or variance <= 0:
            return
        values -= mean
        values *= math.sqrt(wanted.variance / variance)
        values += wanted.mean
        np.clip(values, 0.0, 1.0, out=values)


def _scatter_extremes(rng: np.random.Generator, values: Float64Array) -> None:
    """Move the first two numbers to random positions; the others are in random order already."""
    count = values.size
    if count < 8:
        rng.shuffle(values)
        return
    first = 2 + int(rng.integers(count - 2))
    second = 2 + (first - 1 + int(rng.integers(count - 3))) % (count - 2)
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
