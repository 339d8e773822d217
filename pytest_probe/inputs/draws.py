"""Numbers of a large tensor, computed block by block: the same ones for any order of the blocks and any number of
threads, and no array of all of them but the one they are written to."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import PACKED, AnyArray, BoolArray, Float64Array, numpy_dtype
from pytest_probe.system.machine import usable_cores

# Elements. Up to here all numbers of a tensor are made at once: they take 2 MiB.
LARGE = 1 << 18
# Blocks that a thread takes at a time.
_TURN = 64
# Numbers that a Philox generator makes at a time.
_HELD = 4

_Made = TypeVar("_Made")


class Draw(ABC):
    """`size` float64 numbers, of which any part is computed when it is asked for."""

    size: int

    @abstractmethod
    def part(self, start: int, stop: int) -> Float64Array:
        """Those from start to stop, as a new array. Threads may ask at the same time."""


# A tensor's numbers, flat: in memory, or computed when they are asked for.
Numbers: TypeAlias = AnyArray | Draw


def by_blocks(size: int, work: Callable[[int, int], _Made]) -> list[_Made]:
    """What work(start, stop) gives for each block of so many elements, in their order, on all cores."""
    turn = _TURN * BLOCK

    def of_turn(first: int) -> list[_Made]:
        with np.errstate(all="ignore"):  # which each thread has of its own
            end = min(first + turn, size)
            return [work(start, min(start + BLOCK, end)) for start in range(first, end, BLOCK)]

    turns = range(0, size, turn)
    threads = min(usable_cores(), len(turns))
    if threads < 2:
        found = [of_turn(first) for first in turns]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(of_turn, turns))
    return [each for made in found for each in made]


def round_to_dtype(numbers: Numbers, dtype: str) -> AnyArray:
    """The numbers in a dtype. Floats beyond its range become inf (NaN where it has none), silently."""
    if not isinstance(numbers, Draw):
        if dtype == PACKED:  # which numbers are bytes of
            return numbers.astype(np.uint8).view(numpy_dtype(PACKED))
        with np.errstate(all="ignore"):
            return numbers.astype(numpy_dtype(dtype), copy=False)
    values = np.empty(numbers.size, numpy_dtype(dtype))

    def write(start: int, stop: int) -> None:
        values[start:stop] = numbers.part(start, stop)

    by_blocks(numbers.size, write)
    return values


def whole(numbers: Numbers) -> AnyArray:
    """All the numbers, in float64 where they have not been made yet."""
    return round_to_dtype(numbers, "float64") if isinstance(numbers, Draw) else numbers


def sum_of_squares(numbers: Numbers) -> float:
    if not isinstance(numbers, Draw):
        return float(numbers.dot(numbers))
    return sum(by_blocks(numbers.size, lambda start, stop: float(np.square(numbers.part(start, stop)).sum())))


def written(size: int, dtype: str, fill: Callable[[int], AnyArray]) -> AnyArray:
    """Numbers of which fill(count) gives the next ones: of a law whose draws only come one after another. Many are in a
    dtype already, so that they are in memory once."""
    if size <= BLOCK:
        return fill(size)
    values = np.empty(size, numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        for start in range(0, size, BLOCK):
            count = min(BLOCK, size - start)
            values[start : start + count] = fill(count)
    return values


class Uniforms:
    """The next `size` uniform numbers of a Philox generator, which counts: each can be had without those before it. The
    generator itself goes on behind them."""

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._state: Any = rng.bit_generator.state
        self._own = threading.local()
        self._go_to(rng.bit_generator, size)

    def fill(self, start: int, out: Float64Array) -> None:
        """Write those from start on to `out`."""
        if not hasattr(self._own, "generator"):
            self._own.generator, self._own.place = np.random.Generator(np.random.Philox(key=0)), -1
        if self._own.place != start:  # blocks mostly follow one another
            self._go_to(self._own.generator.bit_generator, start)
        self._own.generator.random(out=out)
        self._own.place = start + out.size

    def _go_to(self, bits: Any, place: int) -> None:
        """Each count gives four numbers, of which the generator holds those that nobody has taken."""
        beyond = place - (_HELD - self._state["buffer_pos"])
        if beyond < 0:
            bits.state = {**self._state, "buffer_pos": self._state["buffer_pos"] + place}
            return
        counts, rest = divmod(beyond, _HELD)
        bits.state = {**self._state, "state": self._counted(counts), "buffer_pos": _HELD}
        bits.random_raw(rest, output=False)

    def _counted(self, counts: int) -> dict[str, Any]:
        count = int.from_bytes(self._state["state"]["counter"].astype("<u8").tobytes(), "little") + counts
        words = np.frombuffer((count % (1 << 256)).to_bytes(32, "little"), "<u8").astype(np.uint64)
        return {**self._state["state"], "counter": words}


def is_counted(rng: np.random.Generator) -> bool:
    """Can `Uniforms` be had of it?"""
    return isinstance(rng.bit_generator, np.random.Philox)


def constant(size: int, number: float) -> Numbers:
    """One number again and again."""
    return np.full(size, number) if size <= LARGE else Constant(size, number)


class Constant(Draw):
    """One number again and again."""

    def __init__(self, size: int, number: float) -> None:
        self.size, self._number = size, number

    def part(self, start: int, stop: int) -> Float64Array:
        return np.full(stop - start, self._number)


class InMemory(Draw):
    """Few numbers that stand in a large tensor."""

    def __init__(self, numbers: Float64Array) -> None:
        self.size, self._numbers = numbers.size, numbers

    def part(self, start: int, stop: int) -> Float64Array:
        return self._numbers[start:stop].copy()


def put(numbers: Numbers, places: BoolArray, number: float) -> Numbers:
    """The numbers with one in place of some, in place where they are in memory."""
    if isinstance(numbers, Draw):
        return Put(numbers, places, number)
    numbers[places] = number
    return numbers


class Put(Draw):
    """A draw with one number in place of some."""

    def __init__(self, draw: Draw, places: BoolArray, number: float) -> None:
        self.size, self._draw, self._places, self._number = draw.size, draw, places, number

    def part(self, start: int, stop: int) -> Float64Array:
        values = self._draw.part(start, stop)
        values[self._places[start:stop]] = self._number
        return values


class Merged(Draw):
    """Numbers of one draw where a mask is set, in their order, those of another elsewhere."""

    def __init__(self, mask: BoolArray, inside: Draw, outside: Draw) -> None:
        self.size, self._mask, self._inside, self._outside = mask.size, mask, inside, outside
        counts = [np.count_nonzero(mask[start : start + BLOCK]) for start in range(0, mask.size, BLOCK)]
        self._before = np.cumsum([0, *counts])

    def part(self, start: int, stop: int) -> Float64Array:
        mask = self._mask[start:stop]
        block = start // BLOCK
        before = int(self._before[block] + np.count_nonzero(self._mask[block * BLOCK : start]))
        count = int(np.count_nonzero(mask))
        values = np.empty(stop - start)
        values[mask] = self._inside.part(before, before + count)
        values[~mask] = self._outside.part(start - before, stop - before - count)
        return values


class Rows(Draw):
    """Rows of a width, of which those that are marked have one number each; the others have the numbers of a draw."""

    def __init__(self, marked: BoolArray, numbers: Float64Array, others: Draw) -> None:
        self.size = 0
        self._marked, self._numbers, self._others = marked, numbers, others
        self._before = np.concatenate(([0], np.cumsum(marked)))
        self._width = others.size // int(marked.size - self._before[-1])
        self.size = marked.size * self._width

    def part(self, start: int, stop: int) -> Float64Array:
        rows = np.arange(start, stop) // self._width
        marked, values = self._marked[rows], np.empty(stop - start)
        values[marked] = self._numbers[self._before[rows[marked]]]
        values[~marked] = self._others.part(self._unmarked(start), self._unmarked(stop))
        return values

    def _unmarked(self, place: int) -> int:
        """Elements before a place that are in no marked row."""
        row, inside = divmod(place, self._width)
        partly = inside if inside and self._marked[row] else 0
        return place - self._width * int(self._before[row]) - partly


class Replaced(Draw):
    """A draw with some numbers in a row replaced by others."""

    def __init__(self, draw: Draw, first: int, numbers: Float64Array) -> None:
        self.size, self._draw, self._first, self._numbers = draw.size, draw, first, numbers

    def part(self, start: int, stop: int) -> Float64Array:
        values = self._draw.part(start, stop)
        first, last = max(start, self._first), min(stop, self._first + self._numbers.size)
        if first < last:
            values[first - start : last - start] = self._numbers[first - self._first : last - self._first]
        return values
