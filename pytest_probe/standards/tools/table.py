"""Which rule judges an API in a dtype, and with which limits: msprobe's tables, and before them a project's own file of
rules and limits, or msprobe's config.json with its lists of APIs to run.

    apis:
      Functional.linear:            # or a glob
        bfloat16:                   # or "*"
          standard: ulp
          over_ratio: 0.01
          justification: the kernel accumulates in bfloat16 by design

Every error names file, line and key.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.standards.tables import packaged_table
from pytest_probe.system.decoding import MAPPING
from pytest_probe.system.yaml_file import YamlFile, read_yaml

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
    """What a project's file says of an API, or of all that a glob matches, in one dtype or in all ("*")."""

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
        name = self.listing(api)
        limits = self.limits_of(name, dtype)
        return Rule(BENCHMARK, {}) if limits is None else Rule(name, limits)

    def limits_of(self, rule: str, dtype: str) -> RuleLimits | None:
        """The rule's own limits for a dtype; None where it has none."""
        return of_dtype(self.limits.get(rule, {}), dtype)

    def with_entries(self, entries: Sequence[Entry]) -> Table:
        return replace(self, entries=(*self.entries, *entries))

    def listing(self, api: str) -> str:
        """The rule whose list has the API; `benchmark` where none has."""
        return next((name for name in RULES if _bare(api) in self.apis[name]), BENCHMARK)

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


_Keys: TypeAlias = tuple[str, ...]
Names: TypeAlias = Annotated[tuple[str, ...], Meta(description="give a list of APIs' names, as [conv2d, linear]")]
_Limit: TypeAlias = Annotated[
    Annotated[float, Meta(ge=0, le=sys.float_info.max)] | UnsetType, Meta(description="give a number, 0 or more")
]
# They hold the lists where a file is for all of msprobe's tasks.
_SECTIONS = ("acc_check", "run_ut")


class StandardsFile(Struct, frozen=True):
    """The lists hold APIs' own names, as msprobe has them: "conv2d". decimals are those of numbers in its CSV files,
    saved is where tensors of --probe-save go; None: not said."""

    entries: tuple[Entry, ...] = ()
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    decimals: int | None = None
    saved: Path | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """Behind the lists what else msprobe's checker finds there."""

    apis: Annotated[dict[str, Any], Meta(description=MAPPING)] = {}
    white_list: Names = ()
    black_list: Names = ()
    error_data_path: Annotated[str | None, Meta(description="give the path of a folder")] = None
    precision: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None, Meta(description="give a number of decimals, from 0 to 20")
    ] = None
    is_online: Any = None
    is_benchmark_log: Any = None
    nfs_path: Any = None
    host: Any = None
    port: Any = None
    rank_list: Any = None
    tls_path: Any = None


class _Dtypes(Struct, frozen=True, forbid_unknown_fields=True):
    """An API's entries, in the dtypes that may have one."""

    float64: Any = UNSET
    float32: Any = UNSET
    float16: Any = UNSET
    bfloat16: Any = UNSET
    float8_e4m3fn: Any = UNSET
    float8_e5m2: Any = UNSET
    complex64: Any = UNSET
    complex128: Any = UNSET
    all: Any = field(default=UNSET, name=ANY)


class _Standard(Struct, frozen=True):
    """The key that decides which others an entry may have."""

    standard: Literal[(*RULES, BENCHMARK)] | None = None  # type: ignore[valid-type]


class _Entry(_Standard, frozen=True, kw_only=True, forbid_unknown_fields=True):
    justification: Annotated[
        Annotated[str, Meta(pattern=r"\S")], Meta(description="add justification, a text that says why")
    ]


# With the rule's limits.
_ENTRIES = {
    rule: cast(type[_Entry], defstruct("_Entry", limits, bases=(_Entry,), frozen=True, kw_only=True))
    for rule in (*RULES, BENCHMARK)
    for limits in [[(limit, _Limit, UNSET) for limit in RULES.get(rule, ())]]
}


def read_standards_file(path: Path) -> StandardsFile:
    """Raises SettingsError."""
    yaml = read_yaml(path, "rules")
    if yaml is None:
        return StandardsFile()
    content = yaml.content
    section = [name for name in _SECTIONS if isinstance(content, dict) and name in content][:1]
    file = yaml.decoded(content[section[0]] if section else content, _File, tuple(section))
    entries = tuple(_entries(yaml, file.apis, (*section, "apis")))
    # msprobe's files have "./" where nobody chose a folder.
    saved = Path(file.error_data_path or ".")
    chosen = None if saved == Path(".") else saved
    return StandardsFile(entries, file.white_list, file.black_list, file.precision, chosen)


def _entries(yaml: YamlFile, apis: Mapping[str, Any], keys: _Keys) -> Iterator[Entry]:
    for pattern, dtypes in apis.items():
        yaml.decoded(dtypes, _Dtypes, (*keys, pattern))
        for dtype, content in dtypes.items():
            yield _entry(yaml, pattern, dtype, content, (*keys, pattern, dtype))


def _entry(yaml: YamlFile, pattern: str, dtype: str, content: Any, keys: _Keys) -> Entry:
    named = yaml.decoded(content, _Standard, keys).standard
    rule = named or packaged().listing(pattern)
    if named is None and rule == BENCHMARK:
        wanted = "msprobe's lists do not have it: add standard"
        raise SettingsError(yaml.place(keys), f"{pattern}: {dtype}", wanted)
    entry = yaml.decoded(content, _ENTRIES[rule], keys)
    limits = {key: value for key in RULES.get(rule, ()) if (value := getattr(entry, key)) is not UNSET}
    return Entry(pattern, dtype, rule, limits, " ".join(entry.justification.split()))
