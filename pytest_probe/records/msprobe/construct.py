"""In which module an API was called: the construct file beside a dump."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.core.printable import printable_line
from pytest_probe.records import lazy_json

_MODULE, _DIRECTIONS = "Module", ("forward", "backward")


class ConstructFile:
    """The module of every entry, read from a construct.json when the first is asked for.

    A file that is missing or damaged, or an entry that it lacks, gives "" and never an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, entry: str) -> str:
        """The module's path ("layers.0.attention"); its class where it is the whole model; a backward entry that has
        none has that of its forward."""
        forward = f"{entry.removesuffix('.backward')}.forward"
        return _path(self._parents.get(entry) or self._parents.get(forward))

    @cached_property
    def _parents(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(lazy_json.read_bytes(self.path), type=dict[str, Any])
        except (OSError, ValueError, RecursionError):
            return {}


def _path(parent: object) -> str:
    """Of a parent's entry name, as "Module.layers.0.Attention.forward.3"; Megatron's stands beside a step."""
    if isinstance(parent, list):
        parent = parent[0] if parent else None
    if not isinstance(parent, str):
        return ""
    parts = parent.split(".")
    ends = [place for place, part in enumerate(parts) if part in _DIRECTIONS]
    if parts[0] != _MODULE or not ends:
        return printable_line(parent)
    path = parts[1 : ends[-1]]
    return printable_line(".".join(path[:-1] or path))
