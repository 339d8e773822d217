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
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import yaml

from pytest_probe.core.regular_file import opened
from pytest_probe.errors import SettingsError
from pytest_probe.standards.tools.table import ANY, BENCHMARK, RULES, Entry, packaged

RULE_DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
    ANY,
)
LISTS = ("white_list", "black_list")
# What else msprobe's checker finds in its config.json; SECTIONS hold it where the file is for all of msprobe's tasks.
IGNORED = ("error_data_path", "precision", "is_online", "is_benchmark_log", "nfs_path", "host", "port", "rank_list")
SECTIONS = ("acc_check", "run_ut")
WORDS = ("standard", "justification")
# Bytes and nested brackets beyond which a file is none of rules.
LARGEST, DEEPEST = 200_000, 50
TOO_DEEP = "its lists or mappings are nested too deep: it is no file of rules"


@dataclass(frozen=True, slots=True)
class StandardsFile:
    """The lists hold APIs' own names, as msprobe has them: "conv2d"."""

    entries: tuple[Entry, ...] = ()
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()


def read_standards_file(path: Path) -> StandardsFile:
    """Raises SettingsError."""
    try:
        with opened(path) as file:
            text = file.read(LARGEST + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "the file", f"it cannot be read: {error}") from None
    if len(text) > LARGEST:
        raise SettingsError(str(path), "the file", f"it has more than {LARGEST:,} bytes: it is no file of rules")
    return _Reader(path).read(text)


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path

    def read(self, text: str) -> StandardsFile:
        root = self._parsed(text)
        if root is None:
            return StandardsFile()
        keys = {key: node for key, node, _ in self._items(root)}
        section = next((keys[name] for name in SECTIONS if name in keys), None)
        if section is not None:
            root = section
            keys = {key: node for key, node, _ in self._items(root)}
        self._check_keys(root, ("apis", *LISTS, *IGNORED))
        entries = self._entries(keys["apis"]) if "apis" in keys else ()
        lists = [self._list(key, keys[key]) if key in keys else () for key in LISTS]
        return StandardsFile(tuple(entries), *lists)

    def _parsed(self, text: str) -> yaml.Node | None:
        # PyYAML's time grows with the square of the depth.
        if _depth(text) > DEEPEST:
            raise SettingsError(str(self.path), "the file", TOO_DEEP)
        # JSON is YAML but for tabs between its tokens.
        try:
            return yaml.compose(text.replace("\t", " ") if text.lstrip().startswith("{") else text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise SettingsError(f"{self.path}:{line}", "the file", f"it is no YAML or JSON: {error.problem}") from None
        except RecursionError:
            raise SettingsError(str(self.path), "the file", TOO_DEEP) from None
        except yaml.YAMLError as error:
            raise SettingsError(str(self.path), "the file", f"it is no YAML or JSON: {error}") from None

    def _entries(self, node: yaml.Node) -> Iterator[Entry]:
        for pattern, dtypes, _ in self._items(node):
            for dtype, rule, line in self._items(dtypes):
                if dtype not in RULE_DTYPES:
                    raise self._unknown(line, dtype, RULE_DTYPES)
                yield self._entry(pattern, dtype, rule)

    def _entry(self, pattern: str, dtype: str, node: yaml.Node) -> Entry:
        values = {key: value for key, value, _ in self._items(node)}
        line = node.start_mark.line + 1
        rule = self._rule(values["standard"]) if "standard" in values else packaged().listing(pattern)
        if rule == BENCHMARK and "standard" not in values:
            raise self._wrong(line, f"{pattern}: {dtype}", "no list of msprobe's has it: say which standard")
        self._check_keys(node, (*WORDS, *RULES.get(rule, ())))
        limits = {key: self._number(key, value) for key, value in values.items() if key not in WORDS}
        why = values.get("justification")
        if not isinstance(why, yaml.ScalarNode) or not why.value.strip():
            raise self._wrong(line, f"{pattern}: {dtype}", "say why in a text: add justification")
        return Entry(pattern, dtype, rule, limits, " ".join(why.value.split()))

    def _rule(self, node: yaml.Node) -> str:
        names = (*RULES, BENCHMARK)
        if not isinstance(node, yaml.ScalarNode) or node.value not in names:
            raise self._unknown(node.start_mark.line + 1, _shown(node), names, "standard: ")
        return str(node.value)

    def _number(self, key: str, node: yaml.Node) -> float:
        # YAML takes 1e-6 for a text.
        try:
            value = float(node.value) if isinstance(node, yaml.ScalarNode) else math.nan
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise self._wrong(node.start_mark.line + 1, f"{key}: {_shown(node)}", "give a number, 0 or more")
        return value

    def _list(self, key: str, node: yaml.Node) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(item, yaml.ScalarNode) for item in node.value):
            raise self._wrong(node.start_mark.line + 1, key, "give a list of APIs' names, as [conv2d, linear]")
        return tuple(str(item.value) for item in node.value)

    def _items(self, node: yaml.Node) -> Iterator[tuple[str, yaml.Node, int]]:
        """The keys of a mapping, with their values and lines."""
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node.start_mark.line + 1, _shown(node), "give a mapping here: lines of `key: value`")
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise self._wrong(line, str(key.value), "it is there twice; give it once")
            seen.add(key.value)
            yield str(key.value), value, line

    def _check_keys(self, node: yaml.Node, known: Iterable[str]) -> None:
        known = tuple(known)
        for key, _, line in self._items(node):
            if key not in known:
                raise self._unknown(line, key, known)

    def _unknown(self, line: int, key: str, known: tuple[str, ...], prefix: str = "") -> SettingsError:
        close = get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return self._wrong(line, prefix + key, f"give one of {', '.join(known)}{hint}")

    def _wrong(self, line: int, key: str, wanted: str) -> SettingsError:
        return SettingsError(f"{self.path}:{line}", key, wanted)


def _depth(text: str) -> int:
    """How deep brackets are nested, those in texts included."""
    steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", text))
    return max(itertools.accumulate(steps), default=0)


def _shown(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
