"""Files as paddle.save writes them: a pickle of one tensor, which is a name and a NumPy array, of a dictionary of
tensors, or of a call's outputs. Nothing in them runs, and Paddle is not needed.
"""

from __future__ import annotations

import io
import math
import mmap
import struct
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np
from msgspec import Struct

from pytest_probe.system.files import open_regular
from pytest_probe.system.tensor_files.base import SafeUnpickler, check_instructions, unpickled

# The instructions that such a pickle is made of. Others could repeat what they hold, or reserve memory.
_INSTRUCTIONS = frozenset(
    "PROTO FRAME STOP MARK MEMOIZE BINPUT BINGET GLOBAL STACK_GLOBAL REDUCE BUILD NONE NEWTRUE NEWFALSE "
    "BININT BININT1 BININT2 LONG1 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "SHORT_BINUNICODE BINUNICODE SHORT_BINBYTES BINBYTES BINBYTES8".split()
)
_MOST_INSTRUCTIONS = 500  # of 80 that a file has
# Those of several tensors, and of Python's own values, are made of these as well; of 40 for each tensor.
_OF_SEVERAL = _INSTRUCTIONS | frozenset(
    "EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINFLOAT LONG_BINPUT LONG_BINGET".split()
)
_MOST_OF_SEVERAL = 1 << 16
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


class _Scalar:
    """A substitute for a scalar of NumPy's."""

    __slots__ = ()

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        """Without it, a pickle could set attributes of the class."""


def _bytes(text: object = "", encoding: object = "latin1") -> bytes:
    """What protocol 2 has for bytes: a text, or nothing of none."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("it holds bytes that are no text")
    return text.encode("latin1")


# All that a file may name, and what it gets: nothing of NumPy's runs before sizes were checked.
_GLOBALS: Mapping[tuple[str, str], Any] = {
    ("builtins", "tuple"): tuple,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _bytes,
    ("__builtin__", "bytes"): _bytes,
    ("numpy.core.multiarray", "scalar"): _Scalar,
    ("numpy._core.multiarray", "scalar"): _Scalar,
}


class _Unpickler(SafeUnpickler):
    known = _GLOBALS


def load(file: BinaryIO) -> np.ndarray:
    """The array of a file, in its own shape and dtype; bfloat16 as the uint16 that Paddle stores.

    Raises OSError, or ValueError for anything else than a pickle of a name and an array of numbers.
    """
    data = file.read()
    stream = io.BytesIO(data)
    check_instructions(_Bounded(stream, len(data)), _INSTRUCTIONS, _MOST_INSTRUCTIONS)
    content = unpickled(_Unpickler, stream)
    if not _is_tensor(content):
        raise ValueError("it holds something else than a name and an array")
    return np.array(_array(content[1].state))


def load_named(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a dictionary of tensors by name, read-only. Raises OSError and ValueError."""
    content = _of_several(path)
    if not isinstance(content, dict):
        raise ValueError("it holds no dictionary of tensors")
    return {str(name): _array(value.state) for name, value in content.items() if isinstance(value, _Array)}


class OtherValue(Struct, frozen=True):
    """A value that is neither a tensor nor a plain number or text: a list in a list, a scalar of NumPy's, an object."""

    kind: str


class CallOutputs(Struct, frozen=True):
    """What PaddleAPEX keeps of a call. several: did it return a list? bfloat16: are floats such numbers in float32?

    Values are read-only arrays, None, bool, int, float, str and `OtherValue`.
    """

    values: tuple[Any, ...]
    several: bool
    bfloat16: bool


def load_outputs(path: Path) -> CallOutputs:
    """The outputs of a call, or its gradients. Raises OSError, or ValueError for anything else."""
    content = _of_several(path)
    if not isinstance(content, list) or len(content) != 2 or not isinstance(content[0], bool):
        raise ValueError("it holds something else than a flag and outputs")
    flag, found = content
    several = isinstance(found, list)
    return CallOutputs(tuple(map(_value, found if several else [found])), several, flag)


def _value(found: object) -> object:
    if _is_tensor(found):
        return _array(found[1].state)  # type: ignore[index]
    if found is None or isinstance(found, bool | int | float | str):
        return found
    # Paddle writes it as it does a tensor, behind a name.
    value = found[1] if _is_named(found) else found
    return OtherValue("scalar of NumPy's" if isinstance(value, _Scalar) else type(found).__name__.lstrip("_"))


def _is_named(found: object) -> TypeGuard[tuple[Any, Any]]:
    return isinstance(found, tuple) and len(found) == 2


def _is_tensor(found: object) -> bool:
    return _is_named(found) and isinstance(found[1], _Array)


def _of_several(path: Path) -> Any:
    """The bytes of large tensors stay in the file, where arrays look at them."""
    with open_regular(path) as file:
        size = path.stat().st_size
        bounded = _Bounded(file, size)
        check_instructions(bounded, _OF_SEVERAL, _MOST_OF_SEVERAL)
        passed = bounded.passed
        if not passed:
            return unpickled(_Unpickler, file)
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    rest, at = io.BytesIO(), 0
    for index, part in enumerate(passed):
        rest.write(mapped[at : part.header])
        # In the place of its bytes: an integer, and the instruction that asks for what lies outside.
        rest.write(b"J" + struct.pack("<i", index) + b"Q")
        at = part.end
    rest.write(mapped[at:])
    return unpickled(partial(_Mapped, parts=[mapped[part.start : part.end] for part in passed]), rest)


class _Mapped(_Unpickler):
    def __init__(self, file: BinaryIO, parts: Sequence[memoryview]) -> None:
        super().__init__(file)
        self._parts = parts

    def persistent_load(self, pid: Any) -> Any:
        return self._parts[pid]


# The bytes before those of the instructions BINBYTES and BINBYTES8, and from which size on theirs are passed over: in
# which a pickle has them outside its frames.
_HEADERS, _LARGE = {b"B": 5, b"\x8e": 9}, 1 << 16


class _Part(Struct, frozen=True):
    """Where bytes lie in a file, and their instruction before them."""

    header: int
    start: int
    end: int


class _Bounded:
    """A file that is asked for no more bytes than it has: memory for them is taken first. Of a tensor's bytes it tells
    the number, by a range of such a length, and reads none."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.readline = file.readline
        self.passed: list[_Part] = []
        self._file, self._size, self._instruction = file, size, b""

    def read(self, count: int) -> bytes | range:
        if count < _LARGE:
            found = self._file.read(count)
            if count == 1:
                self._instruction = found
            return found
        start = self._file.tell()
        end = min(start + count, self._size)
        if self._instruction not in _HEADERS:
            return self._file.read(end - start)
        self.passed.append(_Part(start - _HEADERS[self._instruction], start, end))
        return range(self._file.seek(end) - start)


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
    if not isinstance(data, bytes | memoryview) or len(data) != math.prod(shape) * kind.itemsize:
        raise ValueError("its array has not as many bytes as its shape says")
    array = np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")
    return np.asarray(array, kind.newbyteorder("="), order="C")
