"""The dumps of a run: the given ones, as they were read, and what they are called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import DumpError
from pytest_probe.model.dump import Dump, Reader
from pytest_probe.plugin.data_folders import DumpFolders
from pytest_probe.records import captured_path, find_dumps, is_part, is_recognised, labels, read_dump, stable_path
from pytest_probe.settings import Settings
from pytest_probe.system import archive
from pytest_probe.system.process import paused_gc
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    import pytest


class RunDumps:
    """asked are the dumps of --probe-dump, paths those and the ones among the positional arguments."""

    def __init__(
        self, config: pytest.Config, settings: Settings, readers: Sequence[Reader], positional: Sequence[str]
    ) -> None:
        self._config = config
        self._readers = readers
        self._data_dir = settings.data_dir
        self.asked = settings.dump_files
        given = {arg: self._named(arg) for arg in positional}
        self._positional = given
        named = [path for paths in given.values() for path in paths]
        self.paths = tuple(dict.fromkeys([*self.asked, *named]))
        collected = config.args if "dump" in settings.from_ini else positional
        others = [self._path(arg) for arg in collected if not given.get(arg)]
        self.folders = DumpFolders(config, [*settings.dumps, *named], others)
        self._given = frozenset(self.paths)
        self._whole = {
            path for arg, paths in given.items() for path in paths if arg.count("::") == ("::" in address(path))
        }
        self._known = set(self.paths)
        self._read: dict[Path, Dump] = {}
        self._labels: dict[Path, str] = {}
        self._frameworks: dict[Path, str] = {}

    def read(self, path: Path) -> Dump:
        """The dump at this path, read once. Raises DumpError."""
        if path not in self._read:
            with paused_gc():
                dump = read_dump(path, self._readers)
            if self._data_dir is not None:
                dump = replace(dump, data_dirs=(self._data_dir,), gradient_dirs=(), anywhere=True)
            self._read[path] = dump
            self._frameworks[path] = dump.framework
        return self._read[path]

    def take_over(self, path: Path, label: str, dump: Dump) -> None:
        """Know a dump that another process read, by the label that it has there."""
        self.paths = tuple(dict.fromkeys([*self.paths, path]))
        self._known.add(path)
        self._read[path], self._frameworks[path], self._labels[path] = dump, dump.framework, label

    def readable(self) -> list[tuple[str, Dump]]:
        """The given dumps with their labels, those left out that cannot be read: their items say why."""
        found = []
        for path in self.paths:
            with suppress(DumpError):
                found.append((self.label(path), self.read(path)))
        return found

    def damaged(self) -> dict[Path, str]:
        """What is wrong with the given dumps as a whole. Those are left out of which the user named single items."""
        found = {}
        for path in self.paths:
            if path not in self.asked and path not in self._whole:
                continue
            try:
                text = "\n".join(self.read(path).damage)
            except DumpError as error:
                text = str(error)
            if text:
                found[path] = text
        return found

    def forget(self) -> None:
        """Drop the dumps that were read: a controller of workers runs none of them."""
        self._read.clear()

    def recognises(self, path: Path) -> bool:
        """Is this file a dump?"""
        return is_recognised(path, self._readers)

    def finds(self, path: Path) -> bool:
        """Is this file a dump, and no part of another one?"""
        return self.recognises(path) and not is_part(path, self._readers)

    def named_items(self) -> list[str]:
        """What the positional arguments select other than whole dumps: items by the label of their dump, other paths as
        seen from rootdir."""
        found = []
        for arg, dumps in self._positional.items():
            place, *names = arg.split("::")
            for path in dumps:
                behind = names[address(path).count("::") :]
                found += ["::".join([self.label(path), *behind])] if behind else []
            if not dumps:
                below = os.path.relpath(self._path(place), self._config.rootpath)
                found.append("::".join([Path(below).as_posix(), *names]))
        return found

    def _named(self, arg: str) -> list[Path]:
        """The dumps that a positional argument names, which may be the node id of one's item."""
        path = self._path(arg)
        if path.suffix == ".py" or not path.is_file():
            return []
        if not archive.is_archive(path):
            return [path] if self.recognises(path) else []
        with suppress(DumpError):
            names = arg.split("::")[1:2]
            found = find_dumps(path, self._readers)
            return [dump for dump in found if not names or address(dump).split("::")[1:] == names]
        return []

    def _path(self, arg: str) -> Path:
        return Path(os.path.normpath(self._config.invocation_params.dir / arg.split("::")[0]))

    def is_dump(self, path: Path) -> bool:
        """Was it given, by an option or as a positional argument?"""
        return path in self._given

    def below(self, folder: Path) -> Sequence[Path]:
        """What lies in this folder and is a given dump, or leads to one."""
        return self._below.get(folder, ())

    def inside(self, path: Path) -> Sequence[Path]:
        """The given dumps in this archive."""
        return self._inside.get(path, ())

    @cached_property
    def _inside(self) -> Mapping[Path, Sequence[Path]]:
        found: dict[Path, list[Path]] = {}
        for dump in self.paths:
            place = archive.split(dump)
            if place is not None:
                found.setdefault(place[0], []).append(dump)
        return found

    def of_item(self, nodeid: str) -> tuple[Path, str]:
        """The dump of an item, and the item's name."""
        file, _, name = nodeid.partition("::")
        path = captured_path(self._config.rootpath / file)
        for dump in self.inside(path):
            start = f"{address(dump).partition('::')[2]}::"
            if name.startswith(start):
                return dump, name.removeprefix(start)
        return path, name

    @cached_property
    def _below(self) -> Mapping[Path, Sequence[Path]]:
        found: dict[Path, dict[Path, None]] = {}
        for dump in self.paths:
            for path, folder in pairwise((dump, *dump.parents)):
                found.setdefault(folder, {})[path] = None
        return {folder: tuple(paths) for folder, paths in found.items()}

    def know(self, path: Path) -> None:
        """Count a dump that pytest found itself among the given ones."""
        if path not in self._known:
            self._known.add(path)
            self._labels.clear()

    @property
    def known(self) -> Sequence[Path]:
        """The given ones, and the ones that pytest found itself."""
        return *self.paths, *sorted(self._known - set(self.paths))

    def label(self, path: Path) -> str:
        """The dump's part of portable ids: its shortest unique path tail."""
        self.know(path)
        if not self._labels:
            self._labels = {path: printable_line(label) for path, label in labels(sorted(self._known)).items()}
        return self._labels[path]

    def framework_of(self, path: Path) -> str:
        """That of the dump, where it was read; else the default."""
        return self._frameworks.get(path, frameworks.DEFAULT)


def address(path: Path) -> str:
    """A dump as pytest's command line takes it: its path, or that of its archive with its name there."""
    place = archive.split(path)
    return (
        str(path) if place is None else f"{place[0]}::{stable_path(path).relative_to(stable_path(place[0])).as_posix()}"
    )
