"""Arrays in memory: contiguous copies, and matching pieces that fit in a core's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray


def contiguous(array: np.ndarray) -> np.ndarray:
    """The array, or a copy where it is not contiguous or not writeable.

    NumPy ignores the stride of a dimension of one, but torch refuses a negative one, and warns once a process about an
    array that is not writeable.
    """
    return array if array.flags.carray and min(array.strides, default=0) >= 0 else array.copy()


# Bytes: where an array begins within so many counts as part of how it lies. NumPy's own memory begins at a multiple.
_ALIGNED = 16


def laid_out(array: AnyArray, dtype: np.dtype[Any], strides: tuple[int, ...] | None, offset: int) -> AnyArray:
    """The array as dtype in memory of its own, with these strides in elements, None: in order, which begins so many
    elements after an aligned address."""
    if strides is None and not offset:
        return array.astype(dtype, order="C")
    steps = np.empty(array.shape, dtype).strides if strides is None else [step * dtype.itemsize for step in strides]
    span = 1 + sum((extent - 1) * step for extent, step in zip(array.shape, steps, strict=True)) // dtype.itemsize
    # Not as_strided, which asks for the dtype by a name that NumPy does not have for float8_e5m2.
    memory = np.zeros((offset + span) * dtype.itemsize, np.uint8)
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
