"""What the hooks give to the writer: calls as they were at that moment, in the layout of a dump's JSON.

Snapshots are made while the program waits, so they are what msgspec encodes without a further look: a tree of leaves,
None, lists, tuples and dicts. Keys that msprobe does not have are ignored by its readers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET

Tree: TypeAlias = Any
Json: TypeAlias = Any
# The module entry that contains an entry: None outside of all, UNSET in a dump without module entries.
Parent: TypeAlias = str | msgspec.UnsetType | None

# As json.dump writes them, which msprobe's readers expect, and msgspec does not write.
_TOKENS = {text: msgspec.Raw(text.encode()) for text in ("NaN", "Infinity", "-Infinity")}


class Seen(
    msgspec.Struct,
    gc=False,
    rename={"max": "Max", "min": "Min", "mean": "Mean", "norm": "Norm", "nan": "NaN", "inf": "Inf", "true": "True"}
    | {"high": "Max_except_inf_nan", "low": "Min_except_inf_nan", "crc": "md5", "negative_inf": "Negative_inf"},
):
    """A tensor. Its statistics are filled in when they are known: max and min in its own kind of number, mean and norm
    (2-norm) in float64, of the absolute values where it is complex. high and low are the extremes of the finite
    elements, where others are not finite; nan, inf, negative_inf and true count elements; stride is left out where it
    lies in order. zeros, mode and constant_rows are what `masses` looks for: the share of zeros, the most frequent
    other value and its share, the share of rows of one value and that value where it is the same in all of them. blocks
    are BlockStatistics of numbers whose scales stand next to them.

    values are the elements in their order, of a few integers: sizes, lengths and repeats decide what a call gives.
    address is where its first element lies, for what shares memory; data waits to be saved, and never is encoded;
    data_name is the file that it was saved to, data_key its name in a file that holds several.
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
    negative_inf: Json = UNSET
    true: Json = UNSET
    zeros: Json = UNSET
    mode: Json = UNSET
    constant_rows: Json = UNSET
    blocks: Json = UNSET
    crc: Json = UNSET
    stride: Json = UNSET
    address: Json = UNSET
    values: Json = UNSET
    failed: Json = UNSET
    data_name: Json = UNSET
    data_key: Json = UNSET
    data: Any = UNSET


class PlainEntry(msgspec.Struct, gc=False):
    """Any other argument that a dump can name."""

    type: str
    value: Json


class MemoryFormat(msgspec.Struct, gc=False, tag_field="type", tag="torch.memory_format"):
    format: str


class ForwardEntry(msgspec.Struct, omit_defaults=True, gc=False):
    """The body of a forward entry. Halves that the capture leaves out are UNSET, and what modules alone have."""

    input_args: Tree = UNSET
    input_kwargs: Tree = UNSET
    is_recompute: bool | msgspec.UnsetType = UNSET
    output: Tree = UNSET
    parameters: Tree = UNSET
    probe: Json = UNSET

    def tell(self, key: str, value: Json) -> None:
        """Add what only readers of our own know."""
        self.probe = {**({} if self.probe is UNSET else self.probe), key: value}


class BackwardEntry(msgspec.Struct, gc=False):
    """The body of a backward entry: the gradients that came to the floating outputs, and the gradients that left for
    the floating inputs, in the order of outputs and arguments; None where there was none. probe has the places of
    both."""

    input: Tree = UNSET
    output: Tree = UNSET
    probe: Json = UNSET


class NamedEntry(msgspec.Struct, gc=False):
    """An entry on its way to the writer; where is its stack's number."""

    name: str
    body: Json
    where: int = -1
    parent: Parent = UNSET


def backward_of(parent: Parent) -> Parent:
    """The backward entry of a module, by the name of its forward entry."""
    return ".backward.".join(parent.rsplit(".forward.", 1)) if isinstance(parent, str) else parent


def json_number(value: float) -> Json:
    """A float as the JSON of dumps has it, with NaN and Infinity as bare words."""
    if math.isfinite(value):
        return value
    return _TOKENS["NaN" if value != value else "Infinity" if value > 0 else "-Infinity"]


def seen_tensors(tree: Tree, place: str) -> Iterator[tuple[str, Seen]]:
    """All tensors of a snapshot, each with its dotted place."""
    if isinstance(tree, Seen):
        yield place, tree
    for key, item in _children(tree):
        yield from seen_tensors(item, f"{place}.{key}")


def tuple_places(tree: Tree, place: str) -> Iterator[str]:
    """The places of all tuples in a snapshot: JSON has one word for them and for lists."""
    if isinstance(tree, tuple):
        yield place
    for key, item in _children(tree):
        if type(item) is not Seen:  # as most are
            yield from tuple_places(item, f"{place}.{key}")


def _children(tree: Tree) -> Iterator[tuple[Any, Tree]]:
    if isinstance(tree, list | tuple):
        yield from enumerate(tree)
    elif isinstance(tree, Mapping):
        yield from tree.items()


class Snapshots:
    """Takes snapshots of arguments and results. leaves are the ways by type; a framework adds its own types.

    scalars: the values of numbers and of text are kept, not only their types.
    """

    def __init__(self, scalars: bool) -> None:
        self._taken = 0
        self.scalars = scalars

        def plain(kind: str) -> Callable[[Any], Tree]:
            return (lambda value: PlainEntry(kind, value)) if scalars else (lambda value: {})

        self.leaves: dict[type, Callable[[Any], Tree]] = {
            type(None): lambda value: None,
            **{kind: plain(kind.__name__) for kind in (bool, int, str)},
            float: (lambda value: PlainEntry("float", json_number(value))) if scalars else plain("float"),
            complex: lambda value: PlainEntry("complex", [json_number(value.real), json_number(value.imag)]),
            slice: _slice,
            range: lambda value: PlainEntry("range", [value.start, value.stop, value.step]),
            type(...): lambda value: PlainEntry("ellipsis", "..."),
            tuple: lambda value: tuple([self.take(item) for item in value]),
            list: lambda value: [self.take(item) for item in value],
            # An empty object is what was left out.
            dict: lambda value: {str(key): self.take(item) for key, item in value.items()} or PlainEntry("dict", {}),
        }

    # The dtypes that Python's number types mean where a dtype is asked for.
    pythons: Mapping[type, Any] = {}

    def take(self, value: Any) -> Tree:
        """The snapshot of an argument or a result."""
        return self.leaves.get(type(value), self.other)(value)

    def other(self, value: Any) -> Tree:
        """The snapshot of a value whose type has no way of its own."""
        if isinstance(value, np.generic):
            number = value.item()
            if isinstance(number, np.generic):  # what no Python number holds
                return {"type": f"numpy.{type(value).__qualname__}"}
            tree = self.take(number)
            return PlainEntry(type(value).__name__, tree.value) if isinstance(tree, PlainEntry) else tree
        if isinstance(value, np.ndarray):
            return self.array(np.asarray(value))
        for plain in (int, float):
            if isinstance(value, plain):
                return self.leaves[plain](plain(value))  # JSON shows subclasses as text
        for kind in (tuple, list, dict, str):
            if isinstance(value, kind):
                return self.leaves[kind](value)
        if isinstance(value, type) and value in self.pythons:
            return self.take(self.pythons[value])
        if hasattr(type(value), "__index__"):
            return self.leaves[int](operator.index(value))
        return {"type": f"{type(value).__module__}.{type(value).__qualname__}"}

    def taken(self) -> int:
        """Bytes of data that were copied since the last time this was asked, and wait to be saved."""
        taken, self._taken = self._taken, 0
        return taken

    def waits(self) -> bool:
        """Would `settle` wait for a device?"""
        raise NotImplementedError

    def settle(self) -> None:
        """Fill in all statistics that were put off; waits once for other devices."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forget what is known of memory: writes may have been missed, as between stop and start."""

    def distrust(self, value: Any) -> None:
        """The memory of these tensors may be written to without the framework counting it."""

    def save(self, data: Any, path: Path) -> None:
        """Write one tensor's data. Raises OSError."""
        raise NotImplementedError

    def stored(self, data: Any) -> np.ndarray:
        """One tensor's data in its own dtype, which waits for a device. Raises Unsupported where NumPy has no place for
        it."""
        raise NotImplementedError

    def tensor(self, tensor: Any) -> Tree:
        """The snapshot of a tensor of the framework's."""
        raise NotImplementedError

    def array(self, array: np.ndarray) -> Tree:
        """A NumPy array, whose elements count in their order."""
        raise NotImplementedError


def _slice(value: slice) -> PlainEntry:
    parts = (value.start, value.stop, value.step)
    # A tensor as a bound is an index; reading it waits for the device, as the call itself does.
    return PlainEntry("slice", [None if part is None else int(part) for part in parts])
