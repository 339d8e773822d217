"""Which rule judges an API in a dtype, and with which limits: msprobe's tables, and a project's own before them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.standards.tables import packaged_table

T = TypeVar("T")
RuleLimits: TypeAlias = Mapping[str, float]
ANY = "*"
# The limits that each rule knows. In this order msprobe asks its lists.
RULES: Mapping[str, tuple[str, ...]] = {
    "thousandth": ("ratio",),
    "binary": (),
    "absolute_threshold": ("rtol", "small_value", "small_value_atol"),
    "ulp": ("over", "over_ratio", "mean"),
    "accumulative": ("bound", "error_balance"),
}
BENCHMARK = "benchmark"


class Rule(Struct, frozen=True):
    """justification is the project's own, of an entry in its file."""

    name: str
    limits: RuleLimits
    justification: str = ""


class Entry(Struct, frozen=True):
    """What a project's file says of an API, or of those that a glob matches, in one dtype or in all ("*")."""

    pattern: str
    dtype: str
    rule: str
    limits: RuleLimits
    justification: str

    def matches(self, api: str, dtype: str) -> bool:
        named = fnmatchcase(api, self.pattern) or fnmatchcase(_bare(api), self.pattern)
        return named and self.dtype in (dtype, ANY)

    def rank(self, api: str) -> tuple[bool, bool]:
        """The more precise counts: a name before a glob, a dtype before all."""
        return self.pattern in (api, _bare(api)), self.dtype != ANY


class Table(Struct, frozen=True):
    """apis: the names that each rule's list holds; limits: by rule and dtype. Entries of a project come first."""

    apis: Mapping[str, frozenset[str]]
    limits: Mapping[str, Mapping[str, RuleLimits]]
    entries: tuple[Entry, ...] = ()

    def rule(self, api: str, dtype: str) -> Rule:
        """The rule for "Functional.linear" in float32; `benchmark` where no list has it, or none of its dtypes."""
        entries = [entry for entry in self.entries if entry.matches(api, dtype)]
        if entries:
            return self._of(max(reversed(entries), key=lambda entry: entry.rank(api)), dtype)
        return self._listed(api, dtype)

    def limits_of(self, rule: str, dtype: str) -> RuleLimits | None:
        """The rule's own limits for a dtype; None where it has none."""
        return of_dtype(self.limits.get(rule, {}), dtype)

    def without_lists(self) -> Table:
        """The limits of the rules alone."""
        return replace(self, apis=dict.fromkeys(RULES, frozenset()))

    def with_entries(self, entries: Sequence[Entry]) -> Table:
        return replace(self, entries=(*self.entries, *entries))

    def listing(self, api: str) -> str:
        """The rule whose list has the API; `benchmark` where none has."""
        return next((name for name in RULES if _bare(api) in self.apis[name]), BENCHMARK)

    def _listed(self, api: str, dtype: str) -> Rule:
        name = self.listing(api)
        limits = self.limits_of(name, dtype)
        return Rule(BENCHMARK, {}) if limits is None else Rule(name, limits)

    def _of(self, entry: Entry, dtype: str) -> Rule:
        base = self.limits_of(entry.rule, dtype) or self.limits_of(entry.rule, "float32") or {}
        return Rule(entry.rule, {**base, **entry.limits}, entry.justification)


def of_dtype(by_dtype: Mapping[str, T], dtype: str) -> T | None:
    """What a table says of a dtype, else of all others."""
    return by_dtype.get(dtype, by_dtype.get(ANY))


def _bare(api: str) -> str:
    """The API's own name: "__add__" of "Tensor.__add__"."""
    return api.rpartition(".")[2]


class _Listed(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule's lines of APIs, and its limits by dtype."""

    apis: list[str]
    limits: dict[str, dict[str, float]]


@functools.cache
def packaged() -> Table:
    """msprobe's own tables."""
    rules = packaged_table("msprobe", dict[str, _Listed])
    return Table(
        {name: frozenset(" ".join(rules[name].apis).split()) for name in RULES},
        {name: rules[name].limits for name in RULES},
    )
