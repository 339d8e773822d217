"""Tensors and other arguments of MindSpore's calls as snapshots, with their statistics.

MindSpore computes while the program goes on, and to ask for a value is to wait for all that was asked before. So a
tensor is kept until the end of the step, and looked at there; or before anything is called that may write to it, since
MindSpore counts no writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mindspore
import ml_dtypes
import numpy as np

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.snapshot import PlainEntry, Seen, Tree
from pytest_probe.capture.statistics import COUNTED, SMALL_BYTES, ArraySnapshots
from pytest_probe.frameworks.mindspore.arrays import FLOATS, name_of
from pytest_probe.frameworks.mindspore.signatures import written
from pytest_probe.user_errors import first_line

# Bytes of tensors that are kept, from which on they are looked at: the program may need the memory.
_MOST_WAITING = 1 << 28
_DTYPES: Mapping[Any, str] = {
    dtype: name_of(dtype)
    for name in dir(mindspore)
    if isinstance(dtype := getattr(mindspore, name), mindspore.Type) and str(dtype) != "Number"
}
_WRITTEN = {name: written(name)[2] for name in _DTYPES.values()}
_grad_flag = mindspore.graph.api._pynative_executor.grad_flag


def is_of_kernel(error: Exception) -> bool:
    """Did a kernel raise it?"""
    return "- C++ Call Stack:" in str(error)


class Values(ArraySnapshots):
    dtypes: Mapping[str, np.dtype[Any]] = {
        name: np.dtype(getattr(ml_dtypes, name, name))
        for name in _WRITTEN
        if hasattr(ml_dtypes, name) or name in np.sctypeDict
    }
    floats = FLOATS
    pythons: Mapping[type, Any] = {float: mindspore.float32, int: mindspore.int64, bool: mindspore.bool_}

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__(config)
        self._waiting: deque[tuple[Any, str, int, Seen]] = deque()
        self._room = _MOST_WAITING
        self._lock = threading.RLock()
        self.leaves.update(dict.fromkeys((mindspore.Tensor, mindspore.Parameter), self.tensor))
        self.leaves.update(dict.fromkeys(map(type, _DTYPES), self._dtype))

    def other(self, value: Any) -> Tree:
        if isinstance(value, mindspore.Tensor):
            return self.tensor(value)
        return self._dtype(value) if isinstance(value, mindspore.Type) else super().other(value)

    def _dtype(self, dtype: Any) -> Tree:
        return PlainEntry("mindspore.dtype", str(dtype))

    def tensor(self, tensor: Any) -> Tree:
        """The snapshot of a tensor, whose values are looked at later."""
        dtype, shape = _DTYPES.get(tensor.dtype) or name_of(tensor.dtype), tuple(tensor.shape)
        seen = Seen("mindspore.Tensor", str(tensor.dtype), shape, dtype in FLOATS and bool(_grad_flag()))
        width = self._widths.get(dtype, 0)
        if not (width and (self._kept or self._counts)):
            return seen
        size = width
        for extent in shape:
            size *= extent
        self._waiting.append((tensor, dtype, size, seen))
        self._room -= size
        if self._room < 0:
            self._look_at_waiting()
        return seen

    def waits(self) -> bool:
        return bool(self._waiting)

    def before_write(self) -> None:
        """Look at all tensors that wait."""
        if self._waiting:
            self._look_at_waiting()

    def settle(self) -> None:
        self._look_at_waiting()
        self._settle_small()
        self._settle_samples()

    def _look_at_waiting(self) -> None:
        # The thread that writes the step may be at it, and the program must not write meanwhile.
        with self._lock:
            self._room = _MOST_WAITING
            while self._waiting:
                tensor, dtype, size, seen = self._waiting.popleft()
                try:
                    self._look_at(tensor, dtype, size, seen)
                except Exception as error:
                    seen.failed = f"{type(error).__name__}: {first_line(error)}"
                    if is_of_kernel(error) and threading.current_thread() is threading.main_thread():
                        raise

    def _look_at(self, tensor: Any, dtype: str, size: int, seen: Seen) -> None:
        known = self.dtypes[dtype]
        # MindSpore's bfloat16 and NumPy's meet only where both were compiled for one NumPy. And to share the memory of
        # a small tensor takes longer than to copy it.
        near = known.kind in COUNTED
        shared = near and not 0 < size <= SMALL_BYTES
        array = tensor.asnumpy() if shared else np.frombuffer(tensor.get_bytes(), known).reshape(seen.shape)
        if not size:
            if self._kept:
                seen.data = array
            return
        if near and not tensor.is_contiguous():
            seen.stride, near = tuple(tensor.stride()), False
        if near:
            seen.address = tensor.data_ptr()
        self.look(array, seen, dtype, near and shared)

    def save(self, data: np.ndarray, path: Path) -> None:
        """As msprobe does, what NumPy has not is float32."""
        np.save(path, data if data.dtype.kind in COUNTED else data.astype(np.float32), allow_pickle=False)
