"""The files of one step in msprobe's layout, with keys of our own: dump.json with its companions, and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from pytest_probe.capture.encoding import encoded, save_data
from pytest_probe.capture.growing_json import GrowingFile, write_json
from pytest_probe.capture.snapshot import NamedEntry, Parent, backward_of, forward_of
from pytest_probe.model.dump import TENSOR_FOLDER


class DumpFiles:
    """dump.json is whole after every write; the others are written at the end."""

    def __init__(self, header: dict[str, Any]) -> None:
        self._header = header
        self._stacks: dict[int, list[str]] = {}
        self._parents: dict[str, Parent] = {}

    def open(self, folder: Path) -> None:
        self._folder = folder
        self._dump = GrowingFile(folder / "dump.json", self._header, "data")

    def add(self, entries: Sequence[NamedEntry], save: Callable[[Any, str], None]) -> None:
        if self._header["dump_data_dir"] is not None:
            for entry in entries:
                save_data(entry, lambda data, name: save(data, f"{TENSOR_FOLDER}/{name}"))
        self._dump.add([(entry.name, encoded(entry)) for entry in entries])
        for entry in entries:
            if entry.parent is not UNSET:
                self._parents[entry.name] = entry.parent
            if entry.where >= 0:
                self._stacks.setdefault(entry.where, []).append(entry.name)

    def close(self) -> None:
        self._dump.close()

    def end(self, frames: Mapping[int, list[str]]) -> int:
        shown = {str(index): [names, frames.get(index, [])] for index, names in self._stacks.items()}
        write_json(self._folder / "stack.json", shown)
        write_json(self._folder / "construct.json", whole(self._parents))
        return sum((self._folder / name).stat().st_size for name in ("dump.json", "stack.json", "construct.json"))


def whole(parents: Mapping[str, Parent]) -> dict[str, Parent]:
    """Each entry's parent among the entries. A module may have none of its own, as one through which no gradients
    went: then what stands in it stands in that module's parent."""
    found: dict[str, Parent] = {}
    for name, parent in parents.items():
        while isinstance(parent, str) and parent not in parents:
            parent = backward_of(parents.get(forward_of(parent)))
        found[name] = parent
    return found
