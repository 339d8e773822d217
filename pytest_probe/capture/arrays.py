"""Snapshots of values that NumPy can see, with their statistics: of tensors whose memory is the CPU's, or of copies."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import UNSET

from pytest_probe.capture import kernel
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frequent_values import copy_sample, layout_of, places
from pytest_probe.capture.snapshot import Seen, Tree
from pytest_probe.capture.statistics import HUGE, SMALL_BYTES, CountedSnapshots, count_large, fill_from
from pytest_probe.numerics.arrays import contiguous

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
