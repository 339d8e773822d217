"""YAML, or JSON, that a user wrote: as plain lists, mappings and texts, with the line of each key for errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from msgspec import Struct
from yaml.constructor import BaseConstructor, ConstructorError

from pytest_probe.errors import SettingsError
from pytest_probe.system.decoding import Steps, decode
from pytest_probe.system.files import open_regular

T = TypeVar("T")
# Bytes and nested brackets beyond which nobody wrote a file by hand.
_LARGEST, _DEEPEST = 200_000, 50


class YamlFile(Struct, frozen=True):
    """content has texts in place of numbers: 1e-6 is one in YAML, and a name may be `on`."""

    path: Path
    root: yaml.Node
    content: Any

    def decoded(self, content: Any, kind: type[T], keys: Steps = ()) -> T:
        """What lies at these keys as this kind of Struct. Raises SettingsError with file and line."""
        named = [key for key in keys if isinstance(key, str)]
        return decode(content, kind, lambda steps: self.place((*keys, *steps)), named, strict=False)

    def place(self, steps: Steps) -> str:
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


def read_yaml(path: Path, what: str) -> YamlFile | None:
    """The file; None where it is empty. what says in errors what is in such a file. Raises SettingsError."""
    too_deep = f"its lists or mappings are nested too deep: it is not a file of {what}"
    try:
        with open_regular(path) as file:
            text = file.read(_LARGEST + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "the file", f"it cannot be read: {error}") from None
    if len(text) > _LARGEST:
        raise SettingsError(str(path), "the file", f"it has more than {_LARGEST:,} bytes: it is not a file of {what}")
    # PyYAML's time grows with the square of the depth.
    # How deep brackets are nested, those in texts included.
    steps = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[\[\]{}]", text))
    if max(itertools.accumulate(steps), default=0) > _DEEPEST:
        raise SettingsError(str(path), "the file", too_deep)
    try:
        # JSON is YAML but for tabs between its tokens.
        root = yaml.compose(text.replace("\t", " ") if text.lstrip().startswith("{") else text, yaml.SafeLoader)
        return None if root is None else YamlFile(path, root, _Texts().construct_document(root))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsError(f"{path}:{line}", "the file", f"it is not YAML or JSON: {error.problem}") from None
    except yaml.YAMLError as error:
        raise SettingsError(str(path), "the file", f"it is not YAML or JSON: {error}") from None
    except RecursionError:
        raise SettingsError(str(path), "the file", too_deep) from None


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
