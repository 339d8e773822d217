"""What calls of an API look like: tensors with symbols for sizes, and what each plain argument may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from pytest_probe.features.fuzz.patterns import Pattern, Sizes
from pytest_probe.features.fuzz.regimes import Limits
from pytest_probe.frameworks.base import Signatures
from pytest_probe.model.dump import TensorSpec


class TensorSlot(Struct, frozen=True):
    """The place of a tensor. dtype is what it keeps, "" for the floating dtype that is drawn; many: a list of such
    tensors; optional: it may be left out. recorded is what stood there, whose statistics are drawn, too."""

    pattern: Pattern
    dtype: str = ""
    many: bool = False
    optional: bool = False
    recorded: TensorSpec | None = None


class Choice(Struct, frozen=True):
    """The place of a plain argument that is one of some values. A list that begins with None may be left out."""

    values: tuple[Any, ...]


class DimOf(Struct, frozen=True):
    """The place of a dimension of a tensor, by the tensor's parameter; kind: "dim" one, "dims" also several or all,
    "some" a list of some. recorded are values that a record has."""

    tensor: str
    kind: str = "dim"
    recorded: tuple[Any, ...] = ()


class SizeOf(Struct, frozen=True):
    """The place of a number that is a symbol's size, or of the list of a starred one's."""

    symbol: str
    as_list: bool = False


class Template(Struct, frozen=True):
    """An API's calls, by canonical parameter or by place in the call; signatures are its framework's.

    slots holds what is drawn, by key; arguments are the call's own trees with a Key in each drawn place, None where the
    framework's signature places them. anchors are recorded sizes by symbol, choices what a symbol may be where it is no
    size of any magnitude; dtypes are the floating ones to draw from. differentiable: has a backward.
    ulp and what follows are the table's.
    """

    api: str
    signatures: Signatures
    slots: Mapping[str, Any]
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None
    anchors: Sizes = field(default_factory=dict)
    choices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    fixed: frozenset[str] = frozenset()
    differentiable: bool = True
    ulp: float | None = None
    elementwise: bool = False
    power: float = 0.0
    few: int | None = None
    elements: int | None = None
    largest: float = math.inf
    finite: bool = False
    least: Mapping[str, int] = field(default_factory=dict)

    @property
    def limits(self) -> Limits:
        """What keeps contents within what the API can compute."""
        return Limits(self.power, self.largest)

    @property
    def tensors(self) -> dict[str, TensorSlot]:
        return {key: slot for key, slot in self.slots.items() if isinstance(slot, TensorSlot)}

    @property
    def symbols(self) -> tuple[str, ...]:
        """All symbols of its tensors, in their order."""
        found: dict[str, None] = {}
        for slot in self.tensors.values():
            found |= dict.fromkeys(slot.pattern.symbols)
        return tuple(found)


class Key(Struct, frozen=True):
    """A place in a record's arguments that is drawn anew."""

    name: str
