"""Arrays in memory: contiguous copies, and matching pieces that fit in a core's cache. And two arrays side by side: are
they the same, in bits or values, as near as one rounding leaves them, or within the tolerances of torch.testing?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_probe.numerics import TOLERANCES
from pytest_probe.numerics.dtypes import AnyArray, alike, is_complex, is_floating, is_inexact, ulp, widen


def contiguous(array: np.ndarray) -> np.ndarray:
    """The array, or a copy where it is not contiguous or not writeable.

    NumPy ignores the stride of a dimension of one, but torch refuses a negative one, and warns once a process about an
    array that is not writeable.
    """
    return array if array.flags.carray and min(array.strides, default=0) >= 0 else array.copy()


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last in memory, as strides lay them out; 0 of none."""
    return 0 if 0 in shape else 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def are_apart(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Has each element a place of its own in memory?"""
    reach = 0
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent > 1 and stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


# Bytes: where an array begins within so many counts as part of how it lies. NumPy's own memory begins at a multiple.
_ALIGNED = 16


def laid_out(array: AnyArray, dtype: np.dtype[Any], strides: tuple[int, ...] | None, offset: int) -> AnyArray:
    """The array as dtype in memory of its own, with these strides in elements, None: in order, which begins so many
    elements after an aligned address."""
    if strides is None and not offset:
        return array.astype(dtype, order="C")
    steps = np.empty(array.shape, dtype).strides if strides is None else [step * dtype.itemsize for step in strides]
    count = 1 + sum((extent - 1) * step for extent, step in zip(array.shape, steps, strict=True)) // dtype.itemsize
    # Not as_strided, which asks for the dtype by a name that NumPy does not have for float8_e5m2.
    memory = np.zeros((offset + count) * dtype.itemsize, np.uint8)
    made = np.ndarray(array.shape, dtype, memory, offset * dtype.itemsize, steps)
    made[...] = array
    return made


def layout(array: AnyArray) -> tuple[tuple[int, ...] | None, int]:
    """How an array lies in memory: what `laid_out` takes."""
    in_order = array.flags.c_contiguous or min(array.strides) < 0
    strides = None if in_order else tuple(step // array.itemsize for step in array.strides)
    return strides, array.ctypes.data % _ALIGNED // array.itemsize


# Elements that are drawn or added up at a time: 64 KiB of float64. Numbers of large tensors depend on it.
BLOCK = 8192
# Elements that are computed at a time where none depends on another: 512 KiB of float64, which a core's cache holds.
# Threads that take less at a time wait for Python's lock.
PASS = 65536


def blocks(actual: AnyArray, expected: AnyArray, size: int = BLOCK) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Matching one-dimensional pieces of at most `size` elements of two arrays of one shape, of whatever strides,
    without a copy of the whole. Pieces of strided arrays share one buffer: use each before asking for the next."""
    if actual.flags.c_contiguous and expected.flags.c_contiguous:
        first, second = actual.reshape(-1), expected.reshape(-1)
        for start in range(0, first.size, size):
            yield first[start : start + size], second[start : start + size]
        return
    # nditer copies into its buffer only what is not contiguous.
    pieces: Any = np.nditer(
        (actual, expected),
        flags=("external_loop", "buffered", "zerosize_ok"),
        op_flags=(("readonly",), ("readonly",)),
        buffersize=size,
    )
    yield from pieces


def in_blocks(compute: Callable[..., AnyArray], *arrays: AnyArray) -> AnyArray:
    """The float64 result of an element-wise computation on arrays of one shape, computed piece by piece, so that its
    temporary arrays stay in the processor's cache."""
    shape = arrays[0].shape
    if arrays[0].size <= PASS:
        return compute(*arrays)
    found = np.empty(shape)
    out, flat = found.reshape(-1), [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    for start in range(0, out.size, PASS):
        out[start : start + PASS] = compute(*(array[start : start + PASS] for array in flat))
    return found


# Share of the largest element: two float32 runs differ by less, 16-bit steps inside by more.
CLOSE_SHARE = 2.0**-18
# Elements of a piece whose bits are compared: it stays in a core's cache.
_BYTES = 1 << 15
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}


def widened_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The reference's dtype for this dtype: float64, complex128, or itself."""
    if is_complex(dtype):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if is_floating(dtype) else dtype


def reference_array(array: AnyArray) -> AnyArray:
    """An argument's values in the reference's dtype."""
    return array.astype(widened_dtype(array.dtype), copy=False)


def is_reference_array(found: AnyArray, array: AnyArray) -> bool:
    """Has an array the bits that an argument has in the reference's dtype?"""
    if found.shape != array.shape or found.dtype != widened_dtype(array.dtype):
        return False
    return all(same_bytes(one, reference_array(other)) for one, other in blocks(found, array, _BYTES))


def same_bytes(first: AnyArray, second: AnyArray) -> bool:
    """Have two arrays the same dtype, shape and bits?"""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    # Copies of small arrays cost less than views of them; large ones are compared where they are.
    if first.size < 4096:
        return first.tobytes() == second.tobytes()
    return all(np.array_equal(_bits(one), _bits(other)) for one, other in blocks(first, second, _BYTES))


def _bits(array: AnyArray) -> AnyArray:
    """The bits of a piece, in the widest words that it has."""
    return np.ascontiguousarray(array).view(np.uint64 if array.nbytes % 8 == 0 else np.uint8)


def equal_in_float64(first: AnyArray, second: AnyArray) -> bool:
    """Do two float64 results agree but for their own rounding?"""
    # Chosen: far above what float64 loses in a sum, far below what two different functions differ by.
    return np.allclose(first, second, rtol=1e-9, atol=1e-12, equal_nan=True)


def near(first: AnyArray, second: AnyArray) -> bool:
    """Are two arrays the same, or nearer than any 16-bit rounding inside the call leaves them?"""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if same_bytes(first, second):
        return True
    wide = (widen(one) for one, _ in blocks(first, second))
    tops = (float(np.max(np.abs(each), initial=0.0, where=np.isfinite(each))) for each in wide)
    allowed = CLOSE_SHARE * max(tops, default=0.0)
    pairs = ((widen(one), widen(other)) for one, other in blocks(first, second))
    return all(np.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True) for one, other in pairs)


# Elements of an array that tell which of two others it is nearer to. All of 131 million took 5 s of CPU.
TELLING = 1 << 18


def distance(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """The sum of the differences between two sides beyond half an ulp of the first's dtype, which its own rounding
    explains; inf where NaN or shapes differ. Of arrays with more than 2^19 elements at least 2^18 count, evenly spread.
    """
    total = 0.0
    for name in first.keys() & second.keys():
        if not all(isinstance(side[name], (np.ndarray, float)) for side in (first, second)):
            continue
        one, other = np.asarray(first[name]), np.asarray(second[name])
        if one.shape != other.shape:
            return np.inf
        step = max(1, one.size // TELLING)
        one, other = one.reshape(-1)[::step], other.reshape(-1)[::step]
        with np.errstate(invalid="ignore", over="ignore"):
            total += sum(_beyond_rounding(*pair) for pair in blocks(one, other))
    return total


def _beyond_rounding(first: AnyArray, second: AnyArray) -> float:
    one, other = widen(first), widen(second)
    half = ulp(other, first.dtype) / 2 if is_inexact(first.dtype) else 0.0
    apart = np.where(alike(one, other), 0.0, np.abs(one - other) - half).clip(min=0.0)
    return float(np.sum(np.where(np.isnan(apart), np.inf, apart)))


def not_close(a: AnyArray, b: AnyArray, dtypes: Iterable[str]) -> str:
    """How many elements have |A - B| > atol + rtol |B|, with the larger tolerances of both dtypes, of two devices where
    nobody knows which one is right; "" where none has. NaN is close to NaN."""
    rtol, atol = (max(values) for values in zip(*(TOLERANCES.get(name, (0.0, 0.0)) for name in dtypes), strict=True))
    far = 0
    for one, other in blocks(a, b, PASS):
        close = np.isclose(widen(one), widen(other), rtol=rtol, atol=atol, equal_nan=True)
        far += int(np.count_nonzero(~close))
    return f"{far:,} of {a.size:,} elements are not close (rtol {rtol:g}, atol {atol:g})" if far else ""


def equal_bits(a: AnyArray, b: AnyArray) -> float:
    """The share of elements that have the same bits; of two dtypes, the share with the same value. 1 of none."""
    if not a.size:
        return 1.0
    same = 0
    for one, other in blocks(a, b, PASS):
        same += int(np.count_nonzero((_same_bits if a.dtype == b.dtype else same_value)(one, other)))
    return same / a.size


def _same_bits(one: AnyArray, other: AnyArray) -> AnyArray:
    first, second = (np.ascontiguousarray(side).view(_WORDS[side.dtype.itemsize]) for side in (one, other))
    same = first == second
    return np.asarray(same if same.size == one.size else same.reshape(one.size, -1).all(axis=1))


def same_value(one: AnyArray, other: AnyArray) -> AnyArray:
    """Equal numbers, or NaN twice."""
    return alike(widen(one), widen(other))


# Of the smallest number, or of 1: nothing but a choice, or an edge at zero, shows such a number.
_UNTIED = 2.0**-80


def untied(array: AnyArray, heights: AnyArray | float = 1.0) -> AnyArray:
    """A floating array in float64 whose zeros are tiny numbers, in proportion to heights: of two equal zeros either may
    be chosen, once they move. Other arrays are as they were."""
    if not is_inexact(array.dtype):
        return array
    wide = widen(array)
    smallest = np.min(np.abs(wide), initial=1.0, where=np.isfinite(wide) & (wide != 0))
    return np.where(wide == 0, _UNTIED * smallest * heights, wide)
