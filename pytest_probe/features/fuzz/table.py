"""The table of constraints between the arguments of the most used operators: see table.yaml.

Searches draw only inputs whose error theory bounds. The table keeps them to those; limits are not widened.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec
import yaml


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the table says of some operators; the fields are explained where the table begins."""

    apis: tuple[str, ...]
    tensors: dict[str, str]
    plain: dict[str, Any] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    ulp: float | None = None
    elementwise: bool = False
    power: float = 0.0
    few: int | None = None
    elements: int | None = None
    largest: float = math.inf
    finite: bool = False
    least: dict[str, int] = {}

    @property
    def limits(self) -> dict[str, Any]:
        """What a template takes over as it is."""
        names = ("ulp", "elementwise", "power", "few", "elements", "largest", "finite", "least")
        return {name: getattr(self, name) for name in names}


class TensorText(msgspec.Struct, frozen=True):
    """A tensor of an entry: "int64 *b", "list *s", "c ?"."""

    pattern: str
    dtype: str
    many: bool
    optional: bool

    @classmethod
    def parsed(cls, text: str) -> TensorText:
        words = text.split()
        optional = words[-1] == "?"
        words = words[:-1] if optional else words
        dtype = words[0] if words[0] in ("int64", "int32", "bool") else ""
        many = words[0] == "list"
        return cls(" ".join(words[1:] if dtype or many else words), dtype, many, optional)


@functools.cache
def table() -> Mapping[str, Entry]:
    """The entry of each canonical API."""
    text = resources.files("pytest_probe.features.fuzz").joinpath("table.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = msgspec.convert(yaml.load(text, Loader=loader), list[Entry])
    return {api: entry for entry in entries for api in entry.apis}
