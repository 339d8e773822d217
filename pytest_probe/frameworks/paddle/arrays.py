"""PaddlePaddle: tensors from NumPy's arrays and back, and how they lie in memory."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import ml_dtypes
import numpy as np
import paddle

from pytest_probe.errors import Unsupported
from pytest_probe.numerics.arrays import contiguous

_core: Any = paddle.base.core
# The type of Paddle's tensors, for annotations.
Tensor = Any
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
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, strides, strict=True))
    if not tensor.size or 0 in strides:
        return tensor
    return paddle.zeros([span], tensor.dtype).as_strided(tensor.shape, list(strides)).copy_(tensor, True)


def is_float(tensor: Tensor) -> bool:
    """Can it have a gradient?"""
    return tensor.dtype in FLOATS or tensor.dtype in COMPLEX


# Files of one tensor, as paddle.save writes them: a pickle of a name and a NumPy array. Nothing in them runs.


# The instructions that such a pickle is made of. Others could repeat what they hold, or reserve memory.
_INSTRUCTIONS = frozenset(
    "PROTO FRAME STOP MARK MEMOIZE BINPUT BINGET GLOBAL STACK_GLOBAL REDUCE BUILD NONE NEWTRUE NEWFALSE "
    "BININT BININT1 BININT2 LONG1 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "SHORT_BINUNICODE BINUNICODE SHORT_BINBYTES BINBYTES BINBYTES8".split()
)
_MOST_INSTRUCTIONS = 500  # of 80 that a file has
# By its letter and bytes, what NumPy calls a dtype in a pickle. bfloat16 is stored as uint16.
_DTYPES = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split())
_ORDERS = ("<", ">", "|", "=")


class _Dtype:
    """A substitute for numpy.dtype: what a pickle calls it with, and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object = "", *_: object) -> None:
        self.code = code
        self.order: object = ""

    def __setstate__(self, state: object) -> None:
        self.order = state[1] if isinstance(state, tuple) and len(state) > 1 else None


class _Array:
    """A substitute for numpy.ndarray, and for what makes an empty one: the state that fills it."""

    __slots__ = ("state",)

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


# All that a file may name, and what it gets: nothing of NumPy's runs before sizes were checked.
_GLOBALS: Mapping[tuple[str, str], Any] = {
    ("builtins", "tuple"): tuple,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _GLOBALS[module, name]
        except KeyError:
            raise ValueError(f"it names {module}.{name}, which a stored tensor does not need") from None

    def persistent_load(self, pid: object) -> NoReturn:
        raise ValueError("it points to something outside the file")


def load(file: Path | BinaryIO) -> np.ndarray:
    """The array of a file, in its own shape and dtype; bfloat16 as the uint16 that Paddle stores.

    Raises OSError, or ValueError for anything else than a pickle of a name and an array of numbers.
    """
    data = file.read_bytes() if isinstance(file, Path) else file.read()
    _check_instructions(data)
    try:
        content = _Unpickler(io.BytesIO(data)).load()
    except ValueError:
        raise
    except Exception as error:  # whatever the pickle's instructions lead to
        raise ValueError(f"it is no pickle of a tensor ({type(error).__name__})") from error
    if not (isinstance(content, tuple) and len(content) == 2 and isinstance(content[1], _Array)):
        raise ValueError("it holds something else than a name and an array")
    return _array(content[1].state)


def _check_instructions(data: bytes) -> None:
    """Raises ValueError where one is not among those of a stored tensor, or there are too many."""
    for count, name in enumerate(_instructions(data), 1):
        if name not in _INSTRUCTIONS:
            raise ValueError(f"its pickle has the instruction {name}, which a stored tensor does not need")
        if count > _MOST_INSTRUCTIONS:
            raise ValueError(f"its pickle has more than {_MOST_INSTRUCTIONS} instructions, which no stored tensor has")


def _instructions(data: bytes) -> Iterator[str]:
    try:
        for instruction, _, _ in pickletools.genops(data):
            yield instruction.name
    except ValueError as error:
        raise ValueError(f"it is no pickle of a tensor: {error}") from error


def _array(state: object) -> np.ndarray:
    """The array that a pickle's state of one describes: version, shape, dtype, order of its axes, and bytes."""
    if not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("its array has no state")
    _, shape, dtype, fortran, data = state
    if not isinstance(dtype, _Dtype) or dtype.code not in _DTYPES or dtype.order not in _ORDERS:
        raise ValueError("its array is not of numbers")
    if not isinstance(shape, tuple) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError("its array has no shape")
    kind = np.dtype(f"{dtype.order}{dtype.code}")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * kind.itemsize:
        raise ValueError("its array has not as many bytes as its shape says")
    array = np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")
    return np.array(array, kind.newbyteorder("="), order="C")
