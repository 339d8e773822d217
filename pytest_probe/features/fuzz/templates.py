"""What calls of an API look like: tensors with symbols for sizes, and what each plain argument may be.

Shapes are patterns of symbols, as "*b g*c h w": the same symbol is the same size wherever it occurs in a call.
table.yaml has the constraints between the arguments of the most used operators, also of operators that nobody recorded.
Searches draw only inputs whose error theory bounds. The table keeps them to those; limits are not widened.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import resources
from typing import Any, TypeAlias

import msgspec
import yaml
from msgspec import Struct, field

from pytest_probe.features.fuzz.regimes import Limits
from pytest_probe.frameworks.base import Signatures
from pytest_probe.model.dump import TensorSpec

# The sizes of a call's symbols: one each, several for a starred symbol ("*b").
Sizes: TypeAlias = "Mapping[str, int | tuple[int, ...]]"
# The dtypes of calls that are drawn without a record.
DTYPES = ("float32", "float16", "bfloat16", "float64")


class Pattern(Struct, frozen=True, dict=True):
    """A shape. Each word is a size ("3"), a symbol ("n"), a product of symbols ("g*c"), any number of dimensions
    ("*b"), or a partner that broadcasts with those ("~b": some of them missing from the left or 1)."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Pattern:
        return cls(tuple(text.split()))

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Symbols in their order, starred ones with their star."""
        found: list[str] = []
        for word in self.words:
            starred = [f"*{word[1:]}"] if word[0] in "*~" else [part for part in word.split("*") if not part.isdigit()]
            found += [symbol for symbol in starred if symbol not in found]
        return tuple(found)

    def shape(self, sizes: Sizes, missing: Mapping[str, tuple[bool, ...]] | None = None) -> tuple[int, ...]:
        """The shape for these sizes; symbols without a size count as 1, starred ones as nothing. missing says which
        dimensions of a partner are 1, by symbol."""
        found: list[int] = []
        for word in self.words:
            if word[0] in "*~":
                extents = sizes.get(f"*{word[1:]}", ())
                assert isinstance(extents, tuple)
                ones = (missing or {}).get(word[1:], ()) if word[0] == "~" else ()
                # 1 where ones says so; leading ones may be left out.
                own = [1 if place < len(ones) and ones[place] else extent for place, extent in enumerate(extents)]
                if len(ones) > len(extents) and ones[-1]:
                    own = own[next((place for place, extent in enumerate(own) if extent != 1), len(own)) :]
                found += own
            else:
                parts = (int(part) if part.isdigit() else sizes.get(part, 1) for part in word.split("*"))
                found.append(math.prod(part for part in parts if isinstance(part, int)))
        return tuple(found)

    def read(self, shape: Sequence[int]) -> dict[str, int | tuple[int, ...]] | None:
        """The sizes of symbols that a recorded shape shows; None where it is no such shape. Products give nothing."""
        stars = [place for place, word in enumerate(self.words) if word[0] in "*~"]
        if len(stars) > 1:
            return {}
        extra = len(shape) - len(self.words) + len(stars)
        if extra < 0 or (extra and not stars):
            return None
        found: dict[str, int | tuple[int, ...]] = {}
        place = 0
        for word in self.words:
            if word[0] in "*~":
                if word[0] == "*":
                    found[word] = tuple(shape[place : place + extra])
                place += extra
                continue
            if word.isdigit() and int(word) != shape[place]:
                return None
            if word.isidentifier():
                if found.get(word, shape[place]) != shape[place]:
                    return None
                found[word] = shape[place]
            place += 1
        return found


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


class OperatorLimits(Struct, frozen=True, kw_only=True):
    """What the table says of an operator that a template takes over as it is."""

    ulp: float | None = None
    elementwise: bool = False
    power: float = 0.0
    few: int | None = None
    elements: int | None = None
    largest: float = math.inf
    finite: bool = False
    least: dict[str, int] = {}


class Template(OperatorLimits, frozen=True):
    """An API's calls, by canonical parameter or by place in the call; signatures are its framework's.

    slots holds what is drawn, by key; arguments are the call's own trees with a Key in each drawn place, None where the
    framework's signature places them. anchors are recorded sizes by symbol, choices what a symbol may be where it is no
    size of any magnitude; dtypes are the floating ones to draw from. differentiable: has a backward.
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


class Entry(OperatorLimits, frozen=True, forbid_unknown_fields=True):
    """What the table says of some operators; the fields are explained where the table begins."""

    apis: tuple[str, ...]
    tensors: dict[str, str]
    plain: dict[str, Any] = {}
    sizes: dict[str, tuple[int, ...]] = {}

    @property
    def limits(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in OperatorLimits.__struct_fields__}


@functools.cache
def table() -> Mapping[str, Entry]:
    """The entry of each canonical API."""
    text = resources.files("pytest_probe.features.fuzz").joinpath("table.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = msgspec.convert(yaml.load(text, Loader=loader), list[Entry])
    return {api: entry for entry in entries for api in entry.apis}


def entry_of(api: str, signatures: Signatures) -> Entry | None:
    """What the table says of an API ("Functional.softmax"); None where it does not have it."""
    return table().get(signatures.canonical(api))


def template_from_table(api: str, signatures: Signatures, dtypes: tuple[str, ...] = DTYPES) -> Template:
    """The template of an API that the table has."""
    entry = entry_of(api, signatures)
    assert entry is not None
    slots: dict[str, Any] = {name: tensor_slot(text) for name, text in entry.tensors.items()}
    slots |= {name: plain_slot(rule) for name, rule in entry.plain.items()}
    return Template(api, signatures, slots, choices=entry.sizes, dtypes=dtypes, **entry.limits)


def tensor_slot(text: str) -> TensorSlot:
    """The slot of a text: "int64 *b", "list *s", "c ?"."""
    words = text.split()
    optional = words[-1] == "?"
    words = words[:-1] if optional else words
    dtype = words[0] if words[0] in ("int64", "int32", "bool") else ""
    many = words[0] == "list"
    return TensorSlot(Pattern(tuple(words[1:] if dtype or many else words)), dtype, many, optional)


def plain_slot(rule: Any) -> Any:
    """The slot of a list, or of a text: "dim input", "= g", "sizes *n"."""
    if isinstance(rule, list):
        return Choice(tuple(rule))
    word, name = rule.split()
    if word in ("dim", "dims", "some"):
        return DimOf(name, word)
    return SizeOf(name, as_list=word == "sizes")
