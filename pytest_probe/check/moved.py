"""Arguments that move by a roundoff; large ones block by block, on all cores, without a copy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from pytest_probe.inputs.draws import Uniforms, by_turns
from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import AnyArray, widen

# Gives the numbers between 0 and 1 of a block, from the place at which it begins.
OfBlock: TypeAlias = Callable[[int, AnyArray], AnyArray]


class Apart:
    """A number between 0 and 1 for each element, the next ones of a generator."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def __call__(self, values: AnyArray) -> AnyArray:
        return np.asarray(self._generator.random(values.shape))

    def begun(self, size: int) -> Uniforms:
        """Those of so many elements."""
        return Uniforms(self._generator, size)


class ByValue:
    """A number between 0 and 1 for each value, the same for the same value: splitmix64 of its bits and a salt."""

    def __init__(self, salt: int) -> None:
        self._salt = np.uint64(salt)

    def __call__(self, values: AnyArray) -> AnyArray:
        # Plus zero, since -0 and 0 are equal and have other bits.
        bits = np.asarray(values + 0.0, order="C").view(np.uint64) ^ self._salt
        with np.errstate(over="ignore"):
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray((bits ^ (bits >> np.uint64(31))) / 2.0**64)


class Range(NamedTuple):
    """The least and the largest value, NaN where one is NaN, and those of the finite values; inf and -inf where there
    is none."""

    low: float = np.inf
    high: float = -np.inf
    least: float = np.inf
    most: float = -np.inf

    @classmethod
    def of(cls, values: AnyArray) -> Range:
        if not values.size:
            return cls()
        low, high = float(values.min()), float(values.max())
        if np.isfinite(low) and np.isfinite(high):
            return cls(low, high, low, high)
        finite = values[np.isfinite(values)]
        return cls(low, high, float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf)))


def by_blocks(array: AnyArray, draw: Apart | ByValue, size: float, inward: bool, dtype: np.dtype) -> AnyArray:
    """A real floating array of which each value has moved, in a dtype. Threads draw at the same time."""
    flat, found = array.reshape(-1), np.empty(array.shape, dtype)
    out, ends = found.reshape(-1), _ends_of(flat)
    whole = Range.of(widen(flat)) if ends is None else Range(*ends, *ends)
    if isinstance(draw, ByValue):
        _move(flat, out, lambda start, values: draw(values), size, inward, whole)
        return found
    uniforms = draw.begun(flat.size)
    if ends is not None and kernel.moves(flat, out):
        constant = inward or whole.low == whole.high

        def by_kernel(start: int, stop: int) -> None:
            kernel.move(uniforms.words, start, flat[start:stop], out[start:stop], size, ends, inward=constant)

        by_turns(flat.size, by_kernel)
        return found

    def numbers(start: int, values: AnyArray) -> AnyArray:
        drawn = np.empty(values.size)
        uniforms.fill(start, drawn)
        return drawn

    _move(flat, out, numbers, size, inward, whole)
    return found


def _move(flat: AnyArray, out: AnyArray, numbers: OfBlock, size: float, inward: bool, whole: Range) -> None:
    def move(start: int, stop: int) -> None:
        for first in range(start, stop, BLOCK):
            values = widen(flat[first : min(first + BLOCK, stop)])
            out[first : first + values.size] = moved(values, numbers(first, values), size, inward, whole)

    by_turns(flat.size, move)


def _ends_of(flat: AnyArray) -> tuple[float, float] | None:
    """The least and the greatest value; None where one is not finite, and where it is zero and zeros of both signs are
    there: NumPy takes either for an end, by their places in the whole, and for a value that lies there."""
    ends = by_turns(flat.size, lambda start, stop: _ends(flat[start:stop]))
    known = [each for each in ends if each is not None]
    if len(known) < len(ends):
        return None
    low, high, positive, negative = zip(*known, strict=True)
    if 0.0 in (min(low), max(high)) and any(positive) and any(negative):
        return None
    return min(low), max(high)


def _ends(values: AnyArray) -> tuple[float, float, int, int] | None:
    """Those of a part, and whether positive and negative zeros are there."""
    if kernel.compiled is not None:
        return kernel.ends(values)
    wide = widen(values)
    negative = np.signbit(wide[wide == 0])
    if not np.isfinite(wide).all():
        return None
    return float(wide.min()), float(wide.max()), int(not negative.all()), int(negative.any())


def moved(values: AnyArray, xi: AnyArray, size: float, inward: bool, whole: Range) -> AnyArray:
    """Float64 values of an array of a range, each times (1 + size xi): xi has unit variance, and is made of as many
    numbers between 0 and 1, whose place may be taken. inward: towards zero only."""
    # Uniform from -1 to 1 has a variance of 1/3.
    xi *= 2
    xi -= 1
    xi *= 3.0**0.5
    if inward or whole.low == whole.high:
        # A constant has no range of its own to stay in: towards zero, where few functions have an edge.
        return np.asarray(values * (1.0 - size * np.abs(xi)))
    xi *= size
    xi += 1
    xi *= values
    # inf and NaN have no neighbours to move to; the range is that of the finite numbers.
    if np.isfinite(whole.low) and np.isfinite(whole.high):
        return np.clip(xi, whole.low, whole.high, out=xi)
    if whole.least > whole.most:
        return xi
    return np.where(np.isfinite(values), np.clip(xi, whole.least, whole.most), values)
