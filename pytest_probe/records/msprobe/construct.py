"""In which modules an API was called: the construct.json beside a dump."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from pytest_probe.records import lazy_json
from pytest_probe.system.text import printable_line

_MODULE, _DIRECTIONS = "Module", ("forward", "backward")
_DEEPEST = 100


class ConstructFile:
    """The modules around every entry, read from a construct.json when they are first asked for. A file that is missing
    or damaged, or an entry that it lacks, gives none and never an error."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, entry: str) -> tuple[str, ...]:
        """The modules that an entry's call was made in, innermost first; a backward entry that has none has those of
        its forward."""
        found: list[str] = []
        parent = self._parents.get(entry) or self._parents.get(f"{entry.removesuffix('.backward')}.forward")
        while parent is not None and parent not in found and len(found) < _DEEPEST:
            found.append(parent)
            parent = self._parents.get(parent)
        return tuple(map(printable_line, found))

    @cached_property
    def _parents(self) -> Mapping[str, str | None]:
        try:
            raw = lazy_json.parse(lazy_json.read_bytes(self.path))
        except (OSError, ValueError, RecursionError):
            return {}
        return {entry: _parent(value) for entry, value in raw.items()}


def module_path(module: str) -> str:
    """The path of a module of the name "Module.layers.0.Attention.forward.3", "layers.0"; its class where it is the
    whole model."""
    parts = module.split(".")
    ends = [place for place, part in enumerate(parts) if part in _DIRECTIONS]
    if parts[0] != _MODULE or not ends:
        return module
    path = parts[1 : ends[-1]]
    return ".".join(path[:-1] or path)


def _parent(raw: msgspec.Raw) -> str | None:
    """Megatron's stands beside a step."""
    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list):
        found = found[0] if found else None
    return found if isinstance(found, str) else None
