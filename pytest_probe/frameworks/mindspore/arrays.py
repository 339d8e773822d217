"""MindSpore: tensors from NumPy's arrays and back; its devices, and what its errors say where one has no kernel."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import mindspore
import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.mindspore.signatures import bare
from pytest_probe.frameworks.python.framework import PythonDevice
from pytest_probe.model.measurement import Clock, HostClock
from pytest_probe.numerics.arrays import contiguous
from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.system.process import hidden_noise
from pytest_probe.user_errors import MemoryErrors, message_of

# The type of MindSpore's tensors, for annotations.
Tensor = Any
# MindSpore's bfloat16 and NumPy's meet only where both were compiled for one NumPy: it crosses as float32.
_BFLOAT16 = "bfloat16"
# Dtypes that can have a gradient.
FLOATS = frozenset("float16 bfloat16 float32 float64 complex64 complex128".split())


def dtype_named(name: str) -> Any:
    """MindSpore's dtype of a bare name. Raises Unsupported where it has none."""
    found = getattr(mindspore, "bool_" if name == "bool" else name, None)
    if not isinstance(found, mindspore.Type):
        raise Unsupported(f"dtype {name}, which MindSpore has not", "dtype not supported")
    return found


def name_of(dtype: Any) -> str:
    """The bare name of a dtype."""
    return bare(str(dtype))


def to_tensor(array: np.ndarray) -> Tensor:
    """A tensor of its own memory with the array's values and dtype. Raises Unsupported where MindSpore has no such
    dtype."""
    dtype = dtype_named(array.dtype.name)
    if array.dtype.name == _BFLOAT16:
        return mindspore.Tensor(array.astype(np.float32)).to(dtype)
    return mindspore.Tensor(contiguous(array).copy())


def to_array(tensor: Tensor) -> np.ndarray:
    """A tensor's values, in its dtype."""
    if name_of(tensor.dtype) == _BFLOAT16:
        return np.asarray(tensor.to(mindspore.float32).asnumpy().astype(numpy_dtype(_BFLOAT16)))
    return np.array(tensor.asnumpy())


CPU = "CPU"
KINDS = (CPU, "Ascend", "GPU")
# In lower case: MindSpore gives such errors no type of their own.
_NO_KERNEL = re.compile(
    r"the kernel \S+ unregistered|only supports? ascend|select cpu operator|select \w+ kernel failed"
    r"|not supported on this device|not found op|create kernelmod for op|unsupported op \[|kernel select failed"
    r"|not implement exception"
)
_RAN_OUT = ("out of memory", "memory not enough", "bad_alloc", "cannot allocate memory")


class MindSporeDevice(PythonDevice):
    """A device of MindSpore's own. A process has one: the first that it opens."""

    def put(self, tensor: Any) -> Any:
        return tensor

    def get(self, tensor: Any) -> Any:
        return tensor


def opened(name: str) -> MindSporeDevice:
    """The device of that name ("CPU", "Ascend:1"), whatever its letters. Raises RuntimeError or ValueError without
    one.

    Each call waits for its kernel, so that an error is that of its own call.
    """
    kind, _, number = name.partition(":")
    kind = next((each for each in KINDS if each.lower() == kind.lower()), kind)
    with hidden_noise():
        if mindspore.get_context("device_target") != kind or number:
            mindspore.set_device(kind, int(number or 0))
        mindspore.runtime.launch_blocking()
        # Built for NumPy 1, MindSpore's first call raises with NumPy 2, and no later one.
        try:
            mindspore.mint.mul(mindspore.Tensor(np.ones(1, np.float32)), 1.0)
        except SystemError:
            mindspore.mint.mul(mindspore.Tensor(np.ones(1, np.float32)), 1.0)
    return MindSporeDevice(f"{kind}:{number}" if number else kind)


def default_device() -> str:
    """The accelerator that this build drives, else the CPU."""
    return str(mindspore.get_context("device_target"))


def clock(name: str) -> Clock:
    return HostClock() if name == CPU else HostClock(partial(mindspore.runtime.synchronize))


def has_no_kernel(error: BaseException) -> bool:
    return isinstance(error, NotImplementedError) or _NO_KERNEL.search(message_of(error).lower()) is not None


memory_errors = MemoryErrors(lambda error: any(words in message_of(error).lower() for words in _RAN_OUT))
