"""What files of many named tensors have in common: where each tensor lies, and which shapes can be."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

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
    """What a file holds: its tensors by name, what is wrong with others, the names of what is no tensor, and the texts
    that the file has beside them."""

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
