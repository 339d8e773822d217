"""What files of tensors have in common: where each tensor lies, which shapes can be, and how a pickle is read of which
nothing runs."""

from __future__ import annotations

import math
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, ClassVar

from msgspec import Struct

# Characters of a name: module paths have 100.
MAX_NAME = 1000
MAX_RANK = 64  # of torch and of NumPy
MAX_EXTENT = 2**63  # frameworks' sizes are int64
MAX_EMPTY = 2**59  # elements of complex128, the widest dtype, whose bytes NumPy can count
# What torch writes down and computes when a tensor is read: its numbers are these ones of those in the file.
VIEWS = ("conj", "neg")
_DIGITS = re.compile(r"\d+")


class StoredTensor(Struct, frozen=True):
    """A tensor in a file: a dtype by its bare name, where its first element lies, in bytes, and how many elements there
    are up to the last one; strides in elements, None where they lie in order; which of VIEWS it is."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    span: int
    stride: tuple[int, ...] | None = None
    views: tuple[str, ...] = ()


class NamedTensors(Struct, frozen=True):
    """What a file holds: its tensors by name, what is wrong with others, the names of other objects, and the texts that
    the file has."""

    tensors: Mapping[str, StoredTensor]
    damage: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    texts: Mapping[str, str] = {}


def itemsize(dtype: str) -> int:
    """Bytes of an element of the dtype with this name."""
    digits = _DIGITS.search(dtype)
    return max(int(digits[0]) // 8, 1) if digits else 1


def shape_trouble(shape: tuple[int, ...]) -> str:
    """Why no array has this shape; "" where one may."""
    if len(shape) > MAX_RANK:
        return f"it has {len(shape)} dimensions, expected at most {MAX_RANK}"
    if any(type(extent) is not int or not 0 <= extent < MAX_EXTENT for extent in shape):
        return "its shape has something else than integers from 0 on, below 2**63"
    if 0 in shape and math.prod(filter(None, shape)) >= MAX_EMPTY:
        return "its sizes without zeros have a product of 2**59 or more"
    return ""


def shortened(name: str) -> str:
    """A name for a message."""
    return name if len(name) <= 80 else f"{name[:77]}..."


class SafeUnpickler(pickle.Unpickler):
    """Knows few names, and nothing outside the file."""

    known: ClassVar[Mapping[tuple[str, str], Any]]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise ValueError(f"it names {shortened(f'{module}.{name}')}, which a stored tensor does not need")
        return self.known[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise ValueError("it points to something outside the file")


def check_instructions(pickled: Any, known: frozenset[str], most: int) -> int:
    """How many instructions a pickle has, of bytes or a file. Raises ValueError where one is not among the known ones,
    or there are more than most."""
    instructions, count = pickletools.genops(pickled), 0
    while True:
        try:
            found = next(instructions, None)
        except Exception as error:  # whatever the bytes lead to
            raise ValueError(f"it is cut, or no pickle of a tensor: {error}") from error
        if found is None:
            return count
        count += 1
        name, argument = found[0].name, found[1]
        # A large index into the memo allocates all indices below.
        if name not in known or (name == "LONG_BINPUT" and (argument or 0) > count):
            raise ValueError(f"its pickle has the instruction {name}, which a stored tensor does not need")
        if count > most:
            raise ValueError(f"its pickle has more than {most} instructions, which no stored tensor has")


def unpickled(unpickler: Callable[[BinaryIO], pickle.Unpickler], file: BinaryIO) -> Any:
    """What a pickle holds whose instructions were checked. Raises ValueError."""
    file.seek(0)
    try:
        return unpickler(file).load()
    except ValueError:
        raise
    except Exception as error:  # whatever the instructions lead to
        raise ValueError(f"it is no pickle of a tensor ({type(error).__name__})") from error
