"""What the hooks hand to the writer: calls as they were at that moment, in the layout of a dump's JSON.

Snapshots are made while the program waits, so they are what msgspec encodes without a further look: a tree of leaves,
None, lists, tuples and dicts. Keys that msprobe does not have are ignored by its readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

Tree: TypeAlias = Any
Json: TypeAlias = Any

_TOKENS = {text: msgspec.Raw(text.encode()) for text in ("NaN", "Infinity", "-Infinity")}


class Seen(
    msgspec.Struct,
    gc=False,
    rename={"max": "Max", "min": "Min", "mean": "Mean", "norm": "Norm", "nan": "NaN", "inf": "Inf", "true": "True"}
    | {"high": "Max_except_inf_nan", "low": "Min_except_inf_nan", "crc": "md5"},
):
    """A tensor. Its statistics are filled in when they are known: max and min in its own kind of number, mean and norm
    (2-norm) in float64, of the absolute values where it is complex. high and low are those of the finite elements
    where others are not finite; nan, inf and true count elements; stride is left out where it lies in order.

    address is where its first element lies, for what shares memory; data waits to be saved, and never is encoded.
    """

    type: str
    dtype: str
    shape: Any
    requires_grad: bool
    max: Json = None
    min: Json = None
    mean: Json = None
    norm: Json = None
    high: Json = UNSET
    low: Json = UNSET
    nan: Json = UNSET
    inf: Json = UNSET
    true: Json = UNSET
    crc: Json = UNSET
    stride: Json = UNSET
    address: Json = UNSET
    failed: Json = UNSET
    data_name: Json = UNSET
    data: Any = UNSET


class Leaf(msgspec.Struct, gc=False):
    """Any other argument that a dump can name."""

    type: str
    value: Json


class MemoryFormat(msgspec.Struct, gc=False, tag_field="type", tag="torch.memory_format"):
    format: str


class Call(msgspec.Struct, omit_defaults=True):
    """The body of a forward entry. Halves that the capture leaves out are UNSET."""

    input_args: Tree = UNSET
    input_kwargs: Tree = UNSET
    is_recompute: bool | msgspec.UnsetType = UNSET
    output: Tree = UNSET
    probe: Json = UNSET


class Passed(msgspec.Struct):
    """The body of a backward entry: the gradients that came to the floating outputs, and those that left for the
    floating inputs, in the order of outputs and arguments; None where there was none. probe has the places of both."""

    input: Tree = UNSET
    output: Tree = UNSET
    probe: Json = UNSET


class Entry(msgspec.Struct):
    """An entry on its way to the writer; where is its stack's number, parent the module entry that it stands in."""

    name: str
    body: Json
    where: int = -1
    parent: str | None = None


def number(value: float) -> Json:
    """A float as the JSON of dumps has it, with NaN and Infinity as bare words."""
    if math.isfinite(value):
        return value
    return _TOKENS["NaN" if value != value else "Infinity" if value > 0 else "-Infinity"]


def tensors(tree: Tree, place: str) -> Iterator[tuple[str, Seen]]:
    """All tensors of a snapshot, each with its dotted place."""
    if isinstance(tree, Seen):
        yield place, tree
    for key, item in _children(tree):
        yield from tensors(item, f"{place}.{key}")


def tuples(tree: Tree, place: str) -> Iterator[str]:
    """The places of all tuples in a snapshot: JSON has one word for them and for lists."""
    if isinstance(tree, tuple):
        yield place
    for key, item in _children(tree):
        yield from tuples(item, f"{place}.{key}")


def _children(tree: Tree) -> Iterator[tuple[Any, Tree]]:
    if isinstance(tree, list | tuple):
        yield from enumerate(tree)
    elif isinstance(tree, Mapping):
        yield from tree.items()
