"""PaddlePaddle: tensors from NumPy's arrays and back, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import paddle

from pytest_probe.errors import Unsupported
from pytest_probe.numerics.arrays import contiguous, span

_core: Any = paddle.base.core
# The type of Paddle's tensors, for annotations.
Tensor = Any
# The type of its shapes, which are lists before 3.3.
SIZES: tuple[Any, ...] = (paddle.Size,) if hasattr(paddle, "Size") else ()
CPU = paddle.CPUPlace()
# NumPy has none of these: bfloat16 crosses as Paddle's own uint16, float8 as bytes.
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_BYTES: Mapping[np.dtype[Any], Any] = {
    np.dtype(ml_dtypes.float8_e4m3fn): paddle.float8_e4m3fn,
    np.dtype(ml_dtypes.float8_e5m2): paddle.float8_e5m2,
}
_FROM_BYTES = {dtype: scalar for scalar, dtype in _BYTES.items()}
# Integers that Paddle has no tensors of; its uint16 is bfloat16.
_NO_TENSORS = ("uint16", "uint32", "uint64")
FLOATS = frozenset((paddle.float64, paddle.float32, paddle.float16, paddle.bfloat16, *_BYTES.values()))
COMPLEX = frozenset((paddle.complex64, paddle.complex128))
_NARROW = frozenset((paddle.float16, paddle.bfloat16, *_BYTES.values()))
COMPLEX_OF = {"float64": "complex128", "float32": "complex64"}


def dtype_named(name: str) -> Any:
    """Paddle's dtype of a bare name. Raises Unsupported where it has none."""
    found = getattr(paddle, name, None)
    if not isinstance(found, paddle.dtype):
        raise Unsupported(f"dtype {name}, which Paddle has not", "dtype not supported")
    return found


def name_of(dtype: Any) -> str:
    """The bare name of a dtype."""
    return str(dtype).removeprefix("paddle.")


def to_tensor(array: np.ndarray, gradient: bool = False) -> Tensor:
    """A CPU tensor of its own memory with the array's values and dtype. Raises Unsupported where Paddle has no such
    dtype."""
    plain = contiguous(array)
    if plain.dtype == BFLOAT16:
        plain = plain.view(np.uint16)
    elif plain.dtype in _BYTES:
        return _made(plain.view(np.uint8), gradient).view(_BYTES[plain.dtype])
    elif plain.dtype.name in _NO_TENSORS:
        raise Unsupported(f"a tensor of dtype {plain.dtype.name}, which Paddle has not", "dtype not supported")
    return _made(plain, gradient)


def _made(array: np.ndarray, gradient: bool) -> Tensor:
    return _core.eager.Tensor(array, CPU, False, False, "", not gradient)


def to_array(tensor: Tensor) -> np.ndarray:
    """A CPU tensor's values, in its dtype. Raises Unsupported where NumPy has no place for them."""
    if not tensor.is_dense():
        raise Unsupported("a sparse tensor", "layout not supported")
    if tensor.dtype in _FROM_BYTES:
        return np.asarray(tensor.view(paddle.uint8).numpy().view(_FROM_BYTES[tensor.dtype]))
    values = np.asarray(tensor.numpy())
    return values.view(BFLOAT16) if tensor.dtype == paddle.bfloat16 else values


def restrided(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The tensor laid out with these strides, in memory of its own; a stride of 0 is an expanded dimension."""
    if not tensor.size or 0 in strides:
        return tensor
    # Before 3.3 copy_ changes the strides of what it writes to.
    room = paddle.zeros([span(tensor.shape, strides)], tensor.dtype)
    return paddle.assign(tensor, room.as_strided(tensor.shape, list(strides)))


def is_float(tensor: Tensor) -> bool:
    """Can it have a gradient?"""
    return tensor.dtype in FLOATS or tensor.dtype in COMPLEX
