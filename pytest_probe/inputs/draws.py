"""Random numbers by key: the same on every machine, in every dtype, direction, subset and order. And numbers of a large
tensor, computed block by block: the same ones for any order of the blocks and any number of threads, and no array of
all of them but the one they are written to."""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pytest_probe.numerics import kernel
from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.dtypes import PACKED, AnyArray, BoolArray, Float64Array, numpy_dtype
from pytest_probe.system.machine import usable_cores


class RandomStreams(threading.local):
    """One Philox generator for each thread. A new key costs a tenth of a new generator."""

    def __init__(self) -> None:
        bits = np.random.Philox(key=0)
        self._bits = bits
        self._start: Any = bits.state
        self._generator = np.random.Generator(bits)

    def at(self, name: str) -> np.random.Generator:
        """The stream of a name, from its beginning. The next call ends it."""
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        self._start["state"]["key"] = np.frombuffer(digest, "<u8").astype(np.uint64)
        self._bits.state = self._start
        return self._generator


_STREAMS = RandomStreams()


class RecordStreams:
    """The streams of one record: Philox, keyed by a hash of the record's name, the argument's path and the seed."""

    def __init__(self, record: str, seed: int) -> None:
        self._record = record
        self._seed = seed

    def at(self, path: str) -> np.random.Generator:
        """The stream of the argument at a path ("args.0.1", "kwargs.mask", "grad.0"), from its beginning.

        One generator serves all paths of all records: the next call ends this stream.
        """
        return _STREAMS.at(f"{self._record}\0{path}\0{self._seed}")


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

    def write(self, start: int, out: AnyArray) -> None:
        """Write those from start on to `out`, in its dtype."""
        for first in range(0, out.size, BLOCK):
            stop = min(first + BLOCK, out.size)
            out[first:stop] = self.part(start + first, start + stop)


class Written(Draw):
    """Numbers that are written at once into any dtype."""

    def part(self, start: int, stop: int) -> Float64Array:
        values = np.empty(stop - start)
        self.write(start, values)
        return values

    @abstractmethod
    def write(self, start: int, out: AnyArray) -> None:
        """As of any draw."""


# A tensor's numbers, flat: in memory, or computed when they are asked for.
Numbers: TypeAlias = AnyArray | Draw


def by_turns(size: int, work: Callable[[int, int], _Made]) -> list[_Made]:
    """What work(start, stop) gives for some blocks of so many elements at a time, in their order, on all cores."""
    turn = _TURN * BLOCK

    def of_turn(first: int) -> _Made:
        with np.errstate(all="ignore"):  # which each thread has of its own
            return work(first, min(first + turn, size))

    turns = range(0, size, turn)
    threads = min(usable_cores(), len(turns))
    if threads < 2:
        return [of_turn(first) for first in turns]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(of_turn, turns))


def round_to_dtype(numbers: Numbers, dtype: str) -> AnyArray:
    """The numbers in a dtype. Floats beyond its range become inf (NaN where it has none), silently."""
    if not isinstance(numbers, Draw):
        if dtype == PACKED:  # which numbers are bytes of
            return numbers.astype(np.uint8).view(numpy_dtype(PACKED))
        with np.errstate(all="ignore"):
            return numbers.astype(numpy_dtype(dtype), copy=False)
    values = np.empty(numbers.size, numpy_dtype(dtype))
    by_turns(numbers.size, lambda start, stop: numbers.write(start, values[start:stop]))
    return values


def whole(numbers: Numbers) -> AnyArray:
    """All the numbers, in float64 where they have not been made yet."""
    return round_to_dtype(numbers, "float64") if isinstance(numbers, Draw) else numbers


def sum_of_squares(numbers: Numbers) -> float:
    if not isinstance(numbers, Draw):
        return float(numbers.dot(numbers))

    def of_blocks(start: int, stop: int) -> list[float]:
        blocks = range(start, stop, BLOCK)
        return [float(np.square(numbers.part(first, min(first + BLOCK, stop))).sum()) for first in blocks]

    return sum(itertools.chain.from_iterable(by_turns(numbers.size, of_blocks)))


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

    @functools.cached_property
    def words(self) -> AnyArray:
        """What they follow from: two words of the key, four of the count of which numbers are held, and how many of
        these were taken."""
        state = self._state["state"]
        return np.array([*state["key"], *state["counter"], self._state["buffer_pos"]], np.uint64)

    def fill(self, start: int, out: Float64Array) -> None:
        """Write those from start on to `out`."""
        if kernel.compiled is not None:
            kernel.compiled.uniform(self.words.ctypes.data, start, out.size, out.ctypes.data)
            return
        if not hasattr(self._own, "generator"):
            self._own.generator, self._own.place = np.random.Generator(np.random.Philox(key=0)), -1
        if self._own.place != start:  # blocks mostly follow one another
            self._go_to(self._own.generator.bit_generator, start)
        self._own.generator.random(out=out)
        self._own.place = start + out.size

    def below(self, share: float, start: int, out: BoolArray) -> None:
        """Write which of those from start on are below a share."""
        if kernel.compiled is not None:
            kernel.compiled.below(self.words.ctypes.data, share, start, out.size, out.ctypes.data)
            return
        numbers = np.empty(BLOCK)
        for first in range(0, out.size, BLOCK):
            block = out[first : first + BLOCK]
            self.fill(start + first, numbers[: block.size])
            np.less(numbers[: block.size], share, out=block)

    def _go_to(self, bits: Any, place: int) -> None:
        """Each count gives four numbers, of which the generator holds the ones that nobody has taken."""
        beyond = place - (_HELD - self._state["buffer_pos"])
        if beyond < 0:
            bits.state = {**self._state, "buffer_pos": self._state["buffer_pos"] + place}
            return
        counts, rest = divmod(beyond, _HELD)
        count = int.from_bytes(self._state["state"]["counter"].astype("<u8").tobytes(), "little") + counts
        words = np.frombuffer((count % (1 << 256)).to_bytes(32, "little"), "<u8").astype(np.uint64)
        bits.state = {**self._state, "state": {**self._state["state"], "counter": words}, "buffer_pos": _HELD}
        bits.random_raw(rest, output=False)


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

    def write(self, start: int, out: AnyArray) -> None:
        out[:] = np.array(self._number)


class InMemory(Draw):
    """Few numbers that stand in a large tensor, or truth values as zeros and ones."""

    def __init__(self, numbers: AnyArray) -> None:
        self.size, self._numbers = numbers.size, numbers

    def part(self, start: int, stop: int) -> Float64Array:
        return self._numbers[start:stop].astype(np.float64)


def put(numbers: Numbers, places: BoolArray, number: float) -> Numbers:
    """The numbers with one in place of some, in place where they are in memory."""
    if isinstance(numbers, Draw):
        return Put(numbers, places, number)
    numbers[places] = number
    return numbers


class Put(Written):
    """A draw with one number in place of some."""

    def __init__(self, draw: Draw, places: BoolArray, number: float) -> None:
        self.size, self._draw, self._places, self._number = draw.size, draw, places, number

    def write(self, start: int, out: AnyArray) -> None:
        self._draw.write(start, out)
        out[self._places[start : start + out.size]] = np.array(self._number)


class Merged(Written):
    """Numbers of one draw where a mask is set, in their order, those of another elsewhere."""

    def __init__(self, mask: BoolArray, inside: Draw, outside: Draw) -> None:
        self.size, self._mask, self._inside, self._outside = mask.size, mask, inside, outside
        counts = [np.count_nonzero(mask[start : start + BLOCK]) for start in range(0, mask.size, BLOCK)]
        self._before = np.cumsum([0, *counts])

    def write(self, start: int, out: AnyArray) -> None:
        mask = self._mask[start : start + out.size]
        block = start // BLOCK
        before = int(self._before[block] + np.count_nonzero(self._mask[block * BLOCK : start]))
        inside = np.empty(int(np.count_nonzero(mask)), out.dtype)
        outside = np.empty(out.size - inside.size, out.dtype)
        self._inside.write(before, inside)
        self._outside.write(start - before, outside)
        out[mask] = inside
        out[~mask] = outside


class Rows(Written):
    """Rows of a width, of which the marked ones have one number each; the others have the numbers of a draw."""

    def __init__(self, marked: BoolArray, numbers: Float64Array, others: Draw) -> None:
        self.size = 0
        self._marked, self._numbers, self._others = marked, numbers, others
        self._before = np.concatenate(([0], np.cumsum(marked)))
        self._width = others.size // int(marked.size - self._before[-1])
        self.size = marked.size * self._width

    def write(self, start: int, out: AnyArray) -> None:
        stop = start + out.size
        first, last = start // self._width, -(-stop // self._width)
        inside = slice(start - first * self._width, stop - first * self._width)
        marked = np.repeat(self._marked[first:last], self._width)[inside]
        others = np.empty(self._unmarked(stop) - self._unmarked(start), out.dtype)
        self._others.write(self._unmarked(start), others)
        out[~marked] = others
        numbers = self._numbers[self._before[first] : self._before[last]]
        if others.size < out.size:
            out[marked] = np.repeat(numbers, self._width)[self._marked_before(start) :][: out.size - others.size]

    def _unmarked(self, place: int) -> int:
        """Elements before a place that are in no marked row."""
        return place - self._width * int(self._before[place // self._width]) - self._marked_before(place)

    def _marked_before(self, place: int) -> int:
        """Elements before a place in its own row, where that is marked."""
        row, inside = divmod(place, self._width)
        return inside if inside and self._marked[row] else 0


class Replaced(Written):
    """A draw with some numbers in a row replaced by others."""

    def __init__(self, draw: Draw, first: int, numbers: Float64Array) -> None:
        self.size, self._draw, self._first, self._numbers = draw.size, draw, first, numbers

    def write(self, start: int, out: AnyArray) -> None:
        self._draw.write(start, out)
        first, last = max(start, self._first), min(start + out.size, self._first + self._numbers.size)
        if first < last:
            out[first - start : last - start] = self._numbers[first - self._first : last - self._first]
