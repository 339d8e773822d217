"""What a drawn tensor holds: a regime is a law of its values, computed for all elements at once from a seed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.inputs.fills import resize
from pytest_probe.inputs.planted import values_like
from pytest_probe.model.dump import TensorSpec
from pytest_probe.numerics.dtypes import Float64Array, FloatFormat, float_format


class Limits(Struct, frozen=True):
    """Limits of an operator's inputs: it forms products of `power` of them, 0 where it forms nothing but its result;
    largest is the largest magnitude that it can distinguish from larger ones."""

    power: float = 0.0
    largest: float = math.inf


_UNLIMITED = Limits()


class _MagnitudeRange(Struct, frozen=True):
    """The numbers of a dtype that a call may be given: powers of two of the smallest and the largest magnitude, so that
    what it forms of them inside neither overflows nor vanishes; subnormal: may numbers be below the smallest normal
    one?"""

    form: FloatFormat
    low: float
    top: float
    subnormal: bool

    @classmethod
    @functools.cache
    def of(cls, dtype: str, limits: Limits, terms: int) -> _MagnitudeRange:
        """The range for an operator that sums so many terms. 16 bit is computed in float32 inside."""
        form = float_format(dtype)
        inside = float_format("float32") if form.precision < 24 else form
        power, least = limits.power, float(form.min_exponent)
        most = min(math.log2(form.max), math.log2(limits.largest) if limits.largest < math.inf else math.inf)
        if not power:
            return cls(form, least, most, True)
        top = (math.log2(inside.max) - math.log2(terms + 1) - 1) / power
        return cls(form, max(least, inside.min_exponent / power), min(most, top), power <= 1)


_Law: TypeAlias = "Callable[[_MagnitudeRange, tuple[int, ...], np.random.Generator], Float64Array]"
# The law of a record's own statistics; without a record, of standard normal numbers.
RECORDED = "recorded"
# The law of a tensor whose elements do not meet.
MIXED = "mixed"
# The share of special numbers in a tensor of these regimes, among normal numbers.
_PLANTED_SHARE = 0.1
# Numbers at which kernels change their way, times the sign: where exp overflows in float32 and float16, where tanh and
# sigmoid saturate, halves, multiples of pi.
_EDGES = (0.0, 1.0, 0.5, 1.5, 2.5, 2.0, np.pi, np.pi / 2, 9.0, 11.0, 20.0, 88.5, 104.0, 1e4)


def integers(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Small integers: sums and products of few of them are exact."""
    top = int(rng.choice((1, 2, 8)))
    return rng.integers(-top, top + 1, size=shape).astype(np.float64)


def whole(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Integers of all magnitudes that the dtype has exactly."""
    power = rng.uniform(0, min(reach.form.precision, reach.top), size=shape)
    return np.rint(np.exp2(power)) * _signs(shape, rng)


def halves(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Numbers halfway between two integers."""
    top = int(rng.choice((2, 8, 64)))
    return np.asarray(rng.integers(-top, top, size=shape) + 0.5, np.float64)


def constant(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """One number everywhere, of few bits: rounding that is the same in each term does not cancel in a sum."""
    return np.full(shape, float(rng.choice((1.0, -3.0, 0.5, 12.0, 96.0))))


def ties(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """A few numbers, each many times."""
    few = np.rint(rng.standard_normal(3) * 16) / 16
    return np.asarray(few[rng.integers(3, size=shape)])


def gaussian(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Standard normal numbers."""
    return rng.standard_normal(shape)


def scaled(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Normal numbers of a random scale, moved by one of another scale half of the time."""
    scale, shift = 10.0 ** rng.uniform(-4, 4, size=2)
    scale, shift = min(scale, 2.0 ** (reach.top - 4)), min(shift, 2.0 ** (reach.top - 2))
    return np.asarray(rng.standard_normal(shape) * scale + (shift if rng.random() < 0.5 else 0.0))


def near_zero(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Small numbers of all magnitudes down to the smallest normal one."""
    power = rng.uniform(reach.low, -1, size=shape)
    return np.exp2(power) * _signs(shape, rng)


def subnormal(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Numbers below the smallest normal one; numbers of the smallest binades where subnormal ones would vanish
    inside."""
    form = reach.form
    if not reach.subnormal:
        return np.exp2(rng.uniform(reach.low, reach.low + 4, size=shape)) * _signs(shape, rng)
    steps = rng.integers(1, 1 << (form.precision - 1), size=shape)
    return steps * form.smallest * _signs(shape, rng)


def near_overflow(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Numbers of the largest binades, of one sign half of the time."""
    signs = _signs(shape if rng.random() < 0.5 else (), rng)
    return np.exp2(reach.top - rng.uniform(2.0**-20, 6, size=shape)) * signs


def wide(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Magnitudes log-uniform over the whole range of the dtype, or over the middle of it."""
    top = reach.top if rng.random() < 0.5 else min(reach.top, 10.0)
    power = rng.uniform(max(reach.low, -top), top, size=shape)
    return np.exp2(power) * _signs(shape, rng)


def edges(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Numbers at which kernels change their way, and their neighbours."""
    numbers = np.asarray(_EDGES)[rng.integers(len(_EDGES), size=shape)] * _signs(shape, rng)
    return numbers * (1 + rng.integers(-1, 2, size=shape) * 2 * reach.form.roundoff)


def signed_zero(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Zeros of both signs, and a few ones."""
    return rng.choice((0.0, -0.0, 1.0, -1.0), p=(0.4, 0.4, 0.1, 0.1), size=shape)


def nan(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Normal numbers, some of them NaN."""
    return _planted(rng.standard_normal(shape), np.full(shape, np.nan), rng)


def inf(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Normal numbers, some of them infinite, of one sign half of the time."""
    signs = _signs(shape if rng.random() < 0.5 else (), rng)
    return _planted(rng.standard_normal(shape), np.broadcast_to(signs * np.inf, shape), rng)


def cancellation(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Large numbers and their opposites in the next place, and small ones on top: sums lose most digits."""
    count = int(np.prod(shape, dtype=np.int64))
    large = rng.standard_normal((count + 1) // 2) * 10.0 ** rng.uniform(1, 3)
    values = np.repeat(large, 2)[:count]
    values[1::2] *= -1
    return (values + rng.standard_normal(count) * 0.01).reshape(shape)


# By name, the simplest to read first: a search that shrinks goes that way.
REGIMES: Mapping[str, _Law] = {
    law.__name__: law
    for law in (
        integers,
        constant,
        ties,
        signed_zero,
        halves,
        gaussian,
        scaled,
        whole,
        edges,
        near_zero,
        subnormal,
        near_overflow,
        wide,
        cancellation,
        nan,
        inf,
    )
}


def _mixed(reach: _MagnitudeRange, shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    """Each element by another law: where elements do not meet, one call is as many as it has elements."""
    laws = tuple(REGIMES.values())
    chosen = rng.integers(len(laws), size=shape)
    values = np.empty(shape)
    for place, law in enumerate(laws):
        elements = chosen == place
        values[elements] = law(reach, (int(np.count_nonzero(elements)),), rng)
    return values


# Laws of few different numbers, or such whose exponentials are alike, or but for one 0: rounding is alike in many terms
# of a sum.
FEW_NUMBERS = frozenset(
    {
        "cancellation",
        "integers",
        "constant",
        "ties",
        "signed_zero",
        "halves",
        "edges",
        "near_zero",
        "subnormal",
        "scaled",
    }
)


def floats(
    regime: str,
    dtype: str,
    shape: tuple[int, ...],
    spec: TensorSpec | None,
    rng: np.random.Generator,
    *,
    limits: Limits = _UNLIMITED,
) -> Float64Array:
    """Values of a regime for a floating dtype, in float64. spec is the recorded tensor, whose statistics RECORDED has;
    limits are the operator's. Numbers beyond the dtype's range become its largest ones."""
    if regime == RECORDED:
        return values_like(resize(spec, shape), rng) if spec is not None else rng.standard_normal(shape)
    reach = _MagnitudeRange.of(dtype, limits, 1 << max(math.prod(shape) - 1, 0).bit_length())
    values = np.asarray((_mixed if regime == MIXED else REGIMES[regime])(reach, shape, rng))
    most = reach.form.max if reach.top >= math.log2(reach.form.max) else 2.0**reach.top
    return np.where(np.isfinite(values), np.clip(values, -most, most), values)


def _signs(shape: tuple[int, ...], rng: np.random.Generator) -> Float64Array:
    return np.asarray(rng.integers(2, size=shape) * 2.0 - 1.0, np.float64)


def _planted(values: Float64Array, others: Float64Array, rng: np.random.Generator) -> Float64Array:
    """The values with the others in some places, in one at least."""
    places = rng.random(values.shape) < _PLANTED_SHARE
    if values.size:
        places.flat[int(rng.integers(values.size))] = True
    return np.where(places, others, values)
