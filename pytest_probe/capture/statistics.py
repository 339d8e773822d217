"""Statistics of many small arrays at once; sums in float64. And snapshots of values that NumPy can see, with their
statistics: of tensors whose memory is the CPU's, or of copies."""

from __future__ import annotations

import math
import struct
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from pytest_probe.capture import kernel
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frequent_values import (
    Places,
    copy_sample,
    fill_frequent,
    fill_from_samples,
    layout_of,
    may_be_frequent,
    memory_at,
    places,
)
from pytest_probe.capture.snapshot import Seen, Snapshots, Tree, json_number
from pytest_probe.numerics.arrays import contiguous

ROW = 1024  # elements whose squares are summed in float32
ROWS = 8192  # elements from which on that is faster
ROOM = 1 << 17  # elements in float64, which a cache holds

_BOOL, _FLOAT = kernel.DTYPES.index("bool"), kernel.DTYPES.index("float16")  # floats are the last

_CODES = "?BHIQbhiq"  # how `memoryview` calls the dtypes before the floats, by their numbers
_EXACT = 2.0**53  # whole numbers up to which float64 rounds no sum

MAX_KEPT_INTEGERS = 64  # integers of one tensor: a dump holds that many sizes, lengths or repeats


def fill_together(values: np.ndarray, sizes: Sequence[int], seen: Sequence[Seen]) -> None:
    """Fill in the statistics of arrays that lie one behind the other in values; no size is 0.

    values: 1-d, of any float, integer or bool dtype of NumPy's own.
    """
    starts = np.zeros(len(sizes), np.intp)
    np.cumsum(sizes[:-1], out=starts[1:])
    # NaN and inf go through as they shall; they are looked at one by one below.
    with np.errstate(invalid="ignore", over="ignore"):
        wide = values.astype(np.float64)
        tops = np.maximum.reduceat(values, starts).tolist()
        bottoms = np.minimum.reduceat(values, starts).tolist()
        sums = np.add.reduceat(wide, starts).tolist()
        squares = np.add.reduceat(wide * wide, starts)
        norms = np.sqrt(squares).tolist()
    for one, size, top, bottom, total, norm in zip(seen, sizes, tops, bottoms, sums, norms, strict=True):
        one.max, one.min, one.mean, one.norm = top, bottom, total / size, norm
    for index in np.flatnonzero(~np.isfinite(squares)).tolist():
        fill_not_finite(seen[index], wide[starts[index] : starts[index] + sizes[index]])
    if values.dtype.kind == "f":
        fill_frequent(values, starts, seen)
    if values.dtype.kind == "b":
        for one, true in zip(seen, sums, strict=True):
            # For booleans, a dump has the number of True.
            one.mean = one.norm = None
            one.true = round(true)
    elif values.dtype.kind in "iu":
        # The elements of arrays that are few, and lie in their order; one alone is its maximum.
        for one, start, size in zip(seen, starts.tolist(), sizes, strict=True):
            if 1 < size <= MAX_KEPT_INTEGERS and one.stride is UNSET:
                one.values = values[start : start + size].tolist()


def fill_from(address: int, count: int, number: int, seen: Seen) -> bool:
    """Fill in the statistics of elements that lie one behind the other, by the kernel, which is there; number is the
    number of their dtype. False where something is not finite, or overflows when it is squared: then they are wrong."""
    high, low, total, squares = kernel.compiled.measure(address, count, number)  # type: ignore[union-attr]
    if number == _BOOL:
        seen.max, seen.min, seen.true = high > 0, low > 0, round(total)
        return True
    seen.max, seen.min, seen.mean, seen.norm = high, low, total / count, math.sqrt(squares)
    return math.isfinite(squares)


def fill_small_from(address: int, count: int, number: int, seen: Seen) -> bool:
    """As fill_from, with all that fill_together fills in. False also where that needs the elements themselves, as where
    a value may occur many times."""
    if number < _FLOAT:
        if number == _BOOL or not 1 < count <= MAX_KEPT_INTEGERS or seen.stride is not UNSET:
            return fill_from(address, count, number, seen)
        # Of integers that are kept. Sums that may be rounded have another outcome in another order.
        high, low, total, squares = kernel.compiled.measure(address, count, number)  # type: ignore[union-attr]
        if squares >= _EXACT:
            return False
        seen.max, seen.min, seen.mean, seen.norm = high, low, total / count, math.sqrt(squares)
        code = _CODES[number]
        seen.values = memory_at(address, count * struct.calcsize(code)).cast(code).tolist()
        return True
    high, low, total, squares, zeros, repeats = kernel.compiled.summary(address, count, number)  # type: ignore[union-attr]
    seen.max, seen.min, seen.mean, seen.norm = high, low, total / count, math.sqrt(squares)
    seen.zeros = zeros / count if zeros else 0
    # Where there is one value only, the extremes say so.
    return math.isfinite(squares) and (not repeats or high == low or not may_be_frequent(repeats, count))


def fill_sample_from(address: int, number: int, where: Places, seen: Seen) -> bool:
    """Fill in the masses of a large floating tensor by its sample, by the kernel, which is there. False where a value
    may occur many times in it."""
    zeros, repeats = kernel.compiled.sample(address, where.shape, where.strides, number)  # type: ignore[union-attr]
    count = math.prod(where.shape)
    seen.zeros = zeros / count if zeros else 0
    return not may_be_frequent(repeats, count)


def fill_not_finite(seen: Seen, values: np.ndarray) -> None:
    """The statistics of data in which something is not finite, or overflows when it is squared."""
    # Memory that nothing was written to holds NaN that signal where they are cast.
    with np.errstate(invalid="ignore", over="ignore"):
        wide = values.astype(np.float64, copy=False)
        finite = wide[np.isfinite(wide)]
        seen.max, seen.min = json_number(float(wide.max())), json_number(float(wide.min()))
        seen.mean = json_number(float(wide.mean()))
    if finite.size == wide.size:
        # Everything is finite, and only the squares overflowed.
        scale = float(np.abs(wide).max())
        seen.norm = json_number(scale * math.sqrt(float(np.square(wide / scale).sum())))
        return
    nan = int(np.isnan(wide).sum())
    seen.nan, seen.inf = nan, wide.size - finite.size - nan
    seen.negative_inf = int(np.isneginf(wide).sum())
    seen.norm = json_number(math.nan if nan else math.inf)
    if finite.size:
        seen.high, seen.low = float(finite.max()), float(finite.min())


def fill_from_row(seen: Seen, count: int, row: Sequence[Any], scale: float = 1.0) -> None:
    """Fill in statistics that a device computed: the extremes, of the finite elements or of all; their sum and that of
    their squares; how many are NaN, inf and -inf; the sum of squares of the elements times scale, which do not
    overflow."""
    high, low, total, squares, nan, inf, negative, scaled = row
    if seen.dtype.endswith("bool"):
        seen.true = round(total)
        seen.max, seen.min = seen.true > 0, seen.true == count
        return
    infinities = round(inf + negative)
    if nan or infinities:
        seen.nan, seen.inf, seen.negative_inf = round(nan), infinities, round(negative)
        if math.isfinite(high) and math.isfinite(low):
            seen.high, seen.low = high, low
        top, bottom = (math.inf if inf else high), (-math.inf if negative else low)
        high, low = (math.nan, math.nan) if nan else (top, bottom)
        total = math.nan if nan or (inf and negative) else math.inf if inf else -math.inf
    norm = math.sqrt(squares) if math.isfinite(squares) else math.sqrt(scaled) / scale
    norm = math.nan if nan else math.inf if infinities else norm
    seen.max, seen.min = (round(high), round(low)) if "int" in seen.dtype else (json_number(high), json_number(low))
    seen.mean, seen.norm = json_number(total / count), json_number(norm)


def count_large(values: np.ndarray, seen: Seen) -> None:
    """Fill in the statistics of one large array of any dtype of NumPy's own.

    Where nothing cancels, rows of 1,024 float32 elements are summed in float32: right to about seven digits.
    """
    flat = values.reshape(-1)
    if flat.dtype.kind == "b":
        seen.true = int(np.count_nonzero(flat))
        seen.max, seen.min = seen.true > 0, seen.true == flat.size
        return
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    with np.errstate(invalid="ignore", over="ignore"):
        flat = flat.astype(np.float32) if flat.dtype == np.float16 else flat
        high, low = flat.max().item(), flat.min().item()
        seen.max, seen.min = high, low
        total, squares = _sums(flat, max(high, -low), low >= 0 or high <= 0)
    seen.mean, seen.norm = total / flat.size, math.sqrt(squares)
    if not math.isfinite(squares):
        fill_not_finite(seen, flat)


def _sums(flat: np.ndarray, top: float, one_sign: bool) -> tuple[float, float]:
    """The sum of the elements, top at most, and the sum of their squares."""
    narrow = flat.dtype == np.float32 and flat.size >= ROWS and 1e-10 < top < 1e15
    if not narrow:
        return _wide_sums(flat)
    whole = flat.size // ROW * ROW
    rows, rest = flat[:whole].reshape(-1, ROW), flat[whole:].astype(np.float64)
    squares = np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64) + np.dot(rest, rest)
    total = rows.sum(axis=1).sum(dtype=np.float64) + rest.sum() if one_sign else _wide_sums(flat)[0]
    return float(total), float(squares)


def _wide_sums(flat: np.ndarray) -> tuple[float, float]:
    """The sum and the sum of squares in float64, in pieces that a cache holds."""
    total = squares = 0.0
    for start in range(0, flat.size, ROOM):
        piece = flat[start : start + ROOM].astype(np.float64)
        total += float(piece.sum())
        squares += float(np.dot(piece, piece))
    return total, squares


# Statistics that are put off: of small tensors, which are counted together, and samples of large ones.


SMALL_BYTES = 16_384  # bytes up to which a copy, and statistics of many together, cost less than statistics at once
_TOGETHER = 131_072  # bytes of many tensors: what the cache holds
HUGE = 1 << 28  # bytes of a NumPy array from which on no values are looked at: it may be a file that is mapped

_Groups = dict[Any, tuple[list[bytes], list[Seen]]]


class CountedSnapshots(Snapshots):
    """Snapshots with statistics. A copy of a tensor's memory waits with what the framework calls its dtype."""

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__("scalar" in config.kinds)
        self._counts = config.task in ("statistics", "tensor")
        self._sums = config.summary == "md5"
        self._small: deque[tuple[bytes, Any, Seen]] = deque()
        self._samples: deque[tuple[bytes, Any, Places, Seen]] = deque()

    def numbers(self, parts: Sequence[bytes], dtype: Any) -> np.ndarray:
        """The values of these parts of memory, as NumPy can sum them up: complex ones by their absolute values."""
        raise NotImplementedError

    def _settle_small(self) -> None:
        groups: _Groups = defaultdict(lambda: ([], []))
        room = _TOGETHER
        for _ in range(len(self._small)):
            data, dtype, seen = self._small.popleft()
            if self._sums:
                seen.crc = f"{zlib.crc32(data):08x}"
            parts, ones = groups[dtype]
            parts.append(data)
            ones.append(seen)
            room -= len(data)
            if room < 0:
                self._fill(groups)
                room = _TOGETHER
        self._fill(groups)

    def _fill(self, groups: _Groups) -> None:
        """Leaves no group."""
        while groups:
            dtype, (parts, seen) = groups.popitem()
            try:
                values = self.numbers(parts, dtype)
                whole = sum(map(len, parts))  # bytes, of which each may hold two numbers
                fill_together(values, [len(part) * values.size // whole for part in parts], seen)
            except Exception as error:
                for one in seen:
                    one.failed = f"{type(error).__name__}: {error}"

    def _settle_samples(self) -> None:
        kinds: defaultdict[Any, list[tuple[bytes, Places, Seen]]] = defaultdict(list)
        for _ in range(len(self._samples)):
            data, dtype, where, seen = self._samples.popleft()
            kinds[dtype].append((data, where, seen))
        for dtype, ones in kinds.items():
            values = self.numbers([data for data, _, _ in ones], dtype)
            fill_from_samples(values, [where for _, where, _ in ones], [seen for *_, seen in ones])


# What NumPy counts without a word: of bool, integers, floats and complex numbers.
COUNTED = "biufc"


class ArraySnapshots(CountedSnapshots):
    """dtypes are the framework's by their bare names, as NumPy and ml_dtypes have them; floats the names of those with
    gradients. Others have no values here."""

    dtypes: Mapping[str, np.dtype[np.generic]]
    floats: frozenset[str]

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__(config)
        self._kept = config.task in ("tensor", "overflow_check")
        # Bytes of an element, 0 where its values are not looked at.
        self._widths = {}
        for name, dtype in self.dtypes.items():
            kind = "float" if name in self.floats else "bool" if name == "bool" else "int"
            self._widths[name] = dtype.itemsize if kind in config.kinds else 0
        self._compiled = kernel.numbers()

    def array(self, array: np.ndarray) -> Tree:
        if array.dtype.kind not in COUNTED:
            return {"type": f"numpy.ndarray of {array.dtype}"}
        seen = Seen("numpy.ndarray", array.dtype.name, array.shape, False)
        if 0 < array.nbytes <= HUGE and self._widths.get(array.dtype.name, 0):
            self.look(contiguous(array), seen, array.dtype.name, near=False)
        return seen

    def stored(self, data: np.ndarray) -> np.ndarray:
        return data

    def look(self, array: np.ndarray, seen: Seen, dtype: str, near: bool) -> None:
        """Keep the values, or fill in their statistics, or put that off. dtype is its bare name; near: the tensor's own
        memory."""
        if self._kept:
            seen.data = np.array(array, copy=near, order="C")
            self._taken += seen.data.nbytes
        if not self._counts:
            return
        if array.nbytes <= SMALL_BYTES:
            self._small.append((np.ascontiguousarray(array).tobytes(), dtype, seen))
            return
        if self._sums:
            seen.crc = f"{zlib.crc32(np.ascontiguousarray(array).data.cast('B')):08x}"
        number = self._compiled.get(dtype, -1) if array.dtype.isnative else -1
        dense = array if number < 0 else np.ascontiguousarray(array)
        if number < 0 or not fill_from(dense.ctypes.data, dense.size, number, seen):
            count_large(countable(array), seen)
        if near and dtype in self.floats and array.dtype.kind != "c":
            layout = layout_of(seen.shape, seen.stride or ()) if seen.stride is not UNSET else array.size
            where = places(seen.shape, layout, seen.stride is UNSET)
            self._samples.append((copy_sample(array.ctypes.data, array.itemsize, where), dtype, where, seen))

    def numbers(self, parts: Sequence[bytes], dtype: str) -> np.ndarray:
        return countable(np.frombuffer(b"".join(parts), self.dtypes[dtype]))


def overflown(array: np.ndarray) -> bool:
    """Does it hold NaN or inf?"""
    counted = countable(array)
    return counted.dtype.kind in "fc" and not bool(np.isfinite(counted).all())


def countable(array: np.ndarray) -> np.ndarray:
    """The values as NumPy counts them: complex ones by their absolute values, narrow floats as float32."""
    if array.dtype.kind == "c":
        return np.asarray(np.abs(array))
    if array.dtype.kind not in COUNTED or array.dtype == np.float16:
        return array.astype(np.float32)
    return array
