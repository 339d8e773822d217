"""MindSpore: tensors from NumPy's arrays and back."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.mindspore.signatures import bare
from pytest_probe.numerics.arrays import contiguous
from pytest_probe.numerics.dtypes import numpy_dtype

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
