"""A project's own file of rules and limits, or msprobe's config.json with its lists of APIs to run.

    apis:
      Functional.linear:            # or a glob
        bfloat16:                   # or "*"
          standard: ulp
          over_ratio: 0.01
          justification: the kernel accumulates in bfloat16 by design

Every error names file, line and key.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import yaml
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field
from yaml.constructor import BaseConstructor, ConstructorError

from pytest_probe.errors import SettingsError
from pytest_probe.standards.tools.table import ANY, BENCHMARK, RULES, Entry, packaged
from pytest_probe.system.decoding import MAPPING, Steps, decode
from pytest_probe.system.files import open_regular

T = TypeVar("T")
_Keys: TypeAlias = tuple[str, ...]
Names: TypeAlias = Annotated[tuple[str, ...], Meta(description="give a list of APIs' names, as [conv2d, linear]")]
_Limit: TypeAlias = Annotated[
    Annotated[float, Meta(ge=0, le=sys.float_info.max)] | UnsetType, Meta(description="give a number, 0 or more")
]
# They hold the lists where a file is for all of msprobe's tasks.
_SECTIONS = ("acc_check", "run_ut")
# Bytes and nested brackets beyond which a file is none of rules.
_LARGEST, _DEEPEST = 200_000, 50
_TOO_DEEP = "its lists or mappings are nested too deep: it is not a file of rules"


class StandardsFile(Struct, frozen=True):
    """The lists hold APIs' own names, as msprobe has them: "conv2d"."""

    entries: tuple[Entry, ...] = ()
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """Behind the lists what else msprobe's checker finds there."""

    apis: Annotated[dict[str, Any], Meta(description=MAPPING)] = {}
    white_list: Names = ()
    black_list: Names = ()
    error_data_path: Any = None
    precision: Any = None
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


def _entry_of(rule: str) -> type[_Entry]:
    """With the rule's limits."""
    limits = [(limit, _Limit, UNSET) for limit in RULES.get(rule, ())]
    return cast(type[_Entry], defstruct("_Entry", limits, bases=(_Entry,), frozen=True, kw_only=True))


_ENTRIES = {rule: _entry_of(rule) for rule in (*RULES, BENCHMARK)}


def read_standards_file(path: Path) -> StandardsFile:
    """Raises SettingsError."""
    try:
        with open_regular(path) as file:
            text = file.read(_LARGEST + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "the file", f"it cannot be read: {error}") from None
    if len(text) > _LARGEST:
        raise SettingsError(str(path), "the file", f"it has more than {_LARGEST:,} bytes: it is not a file of rules")
    # PyYAML's time grows with the square of the depth.
    if _depth(text) > _DEEPEST:
        raise SettingsError(str(path), "the file", _TOO_DEEP)
    try:
        # JSON is YAML but for tabs between its tokens.
        root = yaml.compose(text.replace("\t", " ") if text.lstrip().startswith("{") else text, yaml.SafeLoader)
        return StandardsFile() if root is None else _Reader(path, root).read(_Texts().construct_document(root))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsError(f"{path}:{line}", "the file", f"it is not YAML or JSON: {error.problem}") from None
    except yaml.YAMLError as error:
        raise SettingsError(str(path), "the file", f"it is not YAML or JSON: {error}") from None
    except RecursionError:
        raise SettingsError(str(path), "the file", _TOO_DEEP) from None


def _depth(text: str) -> int:
    """How deep brackets are nested, those in texts included."""
    steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", text))
    return max(itertools.accumulate(steps), default=0)


class _Texts(BaseConstructor):
    """Scalars stay texts: 1e-6 is one in YAML, and an API may be called `on`."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        content = super().construct_mapping(node, deep)
        seen: set[Any] = set()
        for key, _ in node.value:
            text = key.value if isinstance(key.value, str) else id(key)  # a list as a key is refused elsewhere
            if text in seen:
                raise ConstructorError(None, None, f"{key.value!r} is there twice; give it once", key.start_mark)
            seen.add(text)
        return content


class _Reader(Struct, frozen=True):
    path: Path
    root: yaml.Node

    def read(self, content: Any) -> StandardsFile:
        section = [name for name in _SECTIONS if isinstance(content, dict) and name in content][:1]
        file = self._decoded(content[section[0]] if section else content, _File, tuple(section))
        entries = tuple(self._entries(file.apis, (*section, "apis")))
        return StandardsFile(entries, file.white_list, file.black_list)

    def _entries(self, apis: Mapping[str, Any], keys: _Keys) -> Iterator[Entry]:
        for pattern, dtypes in apis.items():
            self._decoded(dtypes, _Dtypes, (*keys, pattern))
            for dtype, entry in dtypes.items():
                yield self._entry(pattern, dtype, entry, (*keys, pattern, dtype))

    def _entry(self, pattern: str, dtype: str, content: Any, keys: _Keys) -> Entry:
        named = self._decoded(content, _Standard, keys).standard
        rule = named or packaged().listing(pattern)
        if named is None and rule == BENCHMARK:
            wanted = "msprobe's lists do not have it: add standard"
            raise SettingsError(self._place(keys), f"{pattern}: {dtype}", wanted)
        entry = self._decoded(content, _ENTRIES[rule], keys)
        limits = {key: value for key in RULES.get(rule, ()) if (value := getattr(entry, key)) is not UNSET}
        return Entry(pattern, dtype, rule, limits, " ".join(entry.justification.split()))

    def _decoded(self, content: Any, kind: type[T], keys: _Keys) -> T:
        return decode(content, kind, lambda steps: self._place((*keys, *steps)), keys, strict=False)

    def _place(self, steps: Steps) -> str:
        """The file, and the line of the key or item that the steps from the root lead to, as far as there is one."""
        node = self.root
        line = node.start_mark.line
        for step in steps:
            if isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line
            elif pair := next((pair for pair in node.value if pair[0].value == step), None):
                line, node = pair[0].start_mark.line, pair[1]
        return f"{self.path}:{line + 1}"
