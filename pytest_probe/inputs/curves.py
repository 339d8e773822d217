"""The numbers of a large tensor of known statistics: interpolated in a table at uniform places, mapped smoothly, and
stretched between two extremes.

The compiled kernel makes them where there is one, else NumPy does, with the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pytest_probe.inputs.draws import Draw, Uniforms, Written, by_turns
from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import AnyArray, Float64Array, dtype_name

# Nearer to the minimum is the minimum: a law that piles up at zero has numbers whose squares no dtype holds, where
# tensors have zeros.
LEAST = 2.0**-48
# The means of so many powers are taken in one pass: the fourth of a map of the third degree.
_POWERS = 12
# Kinds of maps.
_BEND, _SHIFT = 0.0, 1.0


class Curve(Draw):
    """Numbers in [0, 1] whose moments are brought to wanted ones: interpolated in a table, then mapped.

    What the means of their powers are after one map more follows from higher powers, so that only every second map
    needs a pass over all numbers.
    """

    def __init__(self, count: int, table: Float64Array, rng: np.random.Generator) -> None:
        self.size, self._table, self._steps = count, table, table[1:] - table[:-1]
        self._uniforms = Uniforms(rng, count)
        self._words = self._uniforms.words
        # Kind and three numbers of each.
        self._maps: Float64Array = np.empty((0, 4))
        self.look_at(count)

    def look_at(self, first: int) -> None:
        """Take moments of the first numbers alone, so many."""
        self._first = first
        self._means: Float64Array | None = None
        self._since = [1.0]  # the map since then: coefficients of t, t t and t t t

    def part(self, start: int, stop: int) -> Float64Array:
        values = np.empty(stop - start)
        if kernel.compiled is not None:
            kernel.compiled.curve(*self._given, start, values.size, values.ctypes.data)
            return values
        self._uniforms.fill(start, values)
        interpolate(values, self._table, self._steps)
        for kind, *numbers in self._maps.tolist():
            if kind == _BEND:
                bend(values, room_of(values), *numbers[:2])
            else:
                shift(values, *numbers)
        return values

    def write_between(self, low: float, high: float, start: int, out: AnyArray) -> None:
        """Write the numbers from start on to `out`, stretched between two extremes: where the kernel is there, and
        rounds to the dtype."""
        assert kernel.compiled is not None
        dtype = kernel.DTYPES[dtype_name(out.dtype)]
        kernel.compiled.stretched(*self._given, start, out.size, out.ctypes.data, LEAST, low, high, dtype)

    @property
    def _given(self) -> tuple[Any, ...]:
        """What tells the kernel these numbers."""
        arrays = self._words.ctypes.data, self._table.ctypes.data, float(self._steps.size), self._maps.ctypes.data
        return *arrays, len(self._maps)

    def moments(self) -> tuple[float, float]:
        """Mean and mean square."""
        if self._means is None:
            sums = np.empty((-(-self._first // BLOCK), _POWERS))
            by_turns(self._first, lambda start, stop: self._power_sums(start, stop, sums[start // BLOCK :]))
            self._means = np.sum(sums, axis=0) / self._first
            self._since = [1.0]
        return self._mean(1), self._mean(2)

    def room(self) -> tuple[float, float]:
        """The means of t t (1 - t) and t t t (1 - t)."""
        return self._mean(2) - self._mean(3), self._mean(3) - self._mean(4)

    def bend(self, p: float, q: float) -> None:
        """Map them by t + t (1 - t) (p + q t)."""
        self._map(_BEND, p, q, 0.0)
        # No power of two maps is known.
        self._since, self._means = ([1 + p, q - p, -q], self._means) if self._since == [1.0] else ([1.0], None)

    def shift(self, mean: float, scale: float, wanted: float) -> None:
        """Move them by a mean, scale them, move them to the wanted one, within [0, 1]."""
        self._map(_SHIFT, mean, scale, wanted)
        self._means = None

    def _map(self, *numbers: float) -> None:
        self._maps = np.array([*self._maps.tolist(), numbers])

    def _mean(self, power: int) -> float:
        assert self._means is not None
        factors = self._since
        for _ in range(power - 1):
            factors = [0.0, *np.convolve(factors, self._since)]
        return float(np.sum(factors * self._means[: len(factors)]))

    def _power_sums(self, start: int, stop: int, out: Float64Array) -> None:
        """Those of each block, a row each, by NumPy's own sums: those of the library that `dot` calls depend on the
        machine and on threads."""
        if kernel.compiled is not None:
            kernel.compiled.power_sums(*self._given, start, stop - start, out.ctypes.data)
            return
        for row, first in zip(out, range(start, stop, BLOCK), strict=False):
            values = self.part(first, min(first + BLOCK, stop))
            power, row[0] = values.copy(), np.add.reduce(values)
            for index in range(1, _POWERS):
                power *= values
                row[index] = np.add.reduce(power)


class Scaled(Written):
    """Numbers between two extremes, which stand at two places, from numbers in [0, 1]: those places' own numbers are
    the first two, and all others follow in their order."""

    def __init__(self, inner: Draw, places: tuple[int, int], low: float, high: float) -> None:
        self.size, self._inner, self._low, self._high = inner.size + 2, inner, low, high
        first, second = places
        moved = [inner.part(place - 2, place - 1) for place in places]
        own = (0, moved[0]), (1, moved[1]), (first, np.zeros(1)), (second, np.ones(1))
        self._single = tuple((place, self._stretched(number)) for place, number in own)

    def write(self, start: int, out: AnyArray) -> None:
        # Of a block they stay in the cache, where the kernel has no such dtype.
        step = self.size if self._is_written_by_kernel(out) else BLOCK
        for first in range(0, out.size, step):
            self._write(start + first, out[first : first + step])
        for place, number in self._single:
            if start <= place < start + out.size:
                out[place - start : place - start + 1] = number

    def _write(self, start: int, out: AnyArray) -> None:
        """All but the numbers that stand at single places."""
        first = max(start, 2)
        rest = out[first - start :]
        if not rest.size:
            return
        if isinstance(self._inner, Curve) and self._is_written_by_kernel(out):
            self._inner.write_between(self._low, self._high, first - 2, rest)
        else:
            rest[:] = self._stretched(self._inner.part(first - 2, first - 2 + rest.size))

    def _is_written_by_kernel(self, out: AnyArray) -> bool:
        # A range that overflows is stretched in two steps.
        by_kernel = isinstance(self._inner, Curve) and math.isfinite(self._high - self._low)
        return by_kernel and kernel.compiled is not None and dtype_name(out.dtype) in kernel.WRITTEN

    def _stretched(self, unit: Float64Array) -> Float64Array:
        unit[unit < LEAST] = 0.0
        return stretch(unit, self._low, self._high)


def interpolate(part: Float64Array, table: Float64Array, steps: Float64Array) -> None:
    """Numbers of a table's distribution in place of uniform ones."""
    part *= steps.size
    cell = part.astype(np.intp)
    part -= cell
    part *= steps.take(cell)
    part += table.take(cell)


def room_of(values: Float64Array) -> Float64Array:
    """t (1 - t)."""
    room = 1 - values
    room *= values
    return room


def bend(values: Float64Array, room: Float64Array, p: float, q: float) -> None:
    """Map numbers by t + t (1 - t) (p + q t), in place; room has t (1 - t)."""
    work = values * q
    work += p
    work *= room
    values += work


def shift(values: Float64Array, mean: float, scale: float, wanted: float) -> None:
    """Move numbers by a mean, scale them, move them to the wanted one, in place and within [0, 1]."""
    values -= mean
    values *= scale
    values += wanted
    np.clip(values, 0.0, 1.0, out=values)


def stretch(unit: Float64Array, low: float, high: float) -> Float64Array:
    """[0, 1] onto [low, high], in place and exact at both ends, also where high - low overflows."""
    if math.isinf(high - low):
        return np.asarray(low * (1 - unit) + high * unit)
    ends = unit == 1.0
    unit *= high - low
    unit += low
    np.minimum(unit, high, out=unit)
    unit[ends] = high
    return unit
