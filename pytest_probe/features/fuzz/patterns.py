"""Shapes as patterns of symbols, "*b g*c h w": the same symbol is the same size wherever it stands in a call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

# What the symbols of a call are: a size each, several of a starred one ("*b").
Sizes: TypeAlias = "Mapping[str, int | tuple[int, ...]]"


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
                found += _partner(extents, (missing or {}).get(word[1:], ())) if word[0] == "~" else extents
            else:
                found.append(math.prod(_size(part, sizes) for part in word.split("*")))
        return tuple(found)

    def read(self, shape: Sequence[int]) -> dict[str, int | tuple[int, ...]] | None:
        """The sizes of symbols that a recorded shape shows; None where it is no such shape. Products tell nothing."""
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


def _size(part: str, sizes: Sizes) -> int:
    if part.isdigit():
        return int(part)
    size = sizes.get(part, 1)
    assert isinstance(size, int)
    return size


def _partner(extents: tuple[int, ...], ones: tuple[bool, ...]) -> list[int]:
    """A shape that broadcasts with the extents: 1 where told so; of those at the left, missing."""
    found = [1 if place < len(ones) and ones[place] else extent for place, extent in enumerate(extents)]
    if len(ones) > len(extents) and ones[-1]:
        while found and found[0] == 1:
            del found[0]
    return found
