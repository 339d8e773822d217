"""Files of one tensor, as paddle.save writes them: a pickle of a name and a NumPy array. Nothing in them runs.

Paddle itself is not needed: the tests of what a hostile file can do run without it.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

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
