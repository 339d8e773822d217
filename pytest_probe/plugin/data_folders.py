"""Folders of dumps hold data: pytest imports, collects and configures nothing because of what lies in them.

pytest loads conftests and packages for every `Directory` on the way to an item. So dumps hang under `DumpFolder`, which
is neither, and takes the hooks of the folder above.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from glob import iglob
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import DumpError
from pytest_probe.records import expand_pattern, is_recognised
from pytest_probe.system import archive

# The folders that a capture makes below the one that it was given.
_CAPTURED = re.compile(r"(step|rank|proc)\d*")


class DumpFolders:
    """Which folders are data. dumps are files and folders as they were given, others the further paths that pytest
    collects: what lies there, and where pytest was started, it would go to without a dump."""

    def __init__(self, config: pytest.Config, dumps: Iterable[Path], others: Iterable[Path]) -> None:
        # The folder whose conftests are the project's. Where no file marks it, pytest's rootdir is whatever lies above
        # the paths that were given, dumps included.
        marked = config.inipath or config.getoption("rootdir", None) or (config.rootpath / "setup.py").is_file()
        self._root = config.rootpath if marked else config.invocation_params.dir
        self._others = list(others)
        self._folders = {_folder_of(path) for path in dumps}
        self._started = [config.invocation_params.dir, *self._others]
        if config.getoption("rootdir", None) or config.getoption("inifilename", None):
            self._started.append(config.rootpath)

    def __iter__(self) -> Iterator[Path]:
        return (folder for folder in self._folders if self.hold(folder))

    def hold(self, folder: Path) -> bool:
        """Is this folder reached for the sake of a dump alone?"""
        if any(path.is_relative_to(folder) for path in self._started):
            return False
        if any(folder.is_relative_to(path) for path in self._others):
            return False
        inside = any(folder.is_relative_to(each) for each in self._folders)
        return inside or not folder.is_relative_to(self._root)


def keep_out(config: pytest.Config) -> None:
    """Let pytest load the conftests that it would load without the dumps. Raises UsageError where it took its settings
    from a dump's folder."""
    given: Any = config.known_args_namespace
    base, inipath = config.invocation_params.dir, config.inipath
    paths = {arg: _absolute(base, arg) for arg in map(str, given.file_or_dir)}
    data = {arg for arg, path in paths.items() if _is_data(path)}
    asked = _asked(base, given.probe_dump or ())
    others = [path for arg, path in paths.items() if arg not in data]
    if inipath is not None and not asked and not paths:
        asked = _asked(inipath.parent, config.getini("probe_dump") or ())
        # Where pytest looks for tests when its command line names no path.
        start = config.invocation_params.dir
        patterns = config.getini("testpaths") if start == config.rootpath else []
        others = [_absolute(start, path) for each in patterns for path in iglob(each, recursive=True)] or [start]
    folders = DumpFolders(config, [*asked, *(paths[arg] for arg in data)], others)
    if inipath is not None and folders.hold(inipath.parent) and not given.inifilename:
        raise pytest.UsageError(
            f"{inipath}: it lies in the folder of a dump, which is data and sets no options of pytest; give the dump "
            "as --probe-dump=PATH, with the =, and --probe-api=NAME for one call of it"
        )
    given.file_or_dir = [arg for arg in given.file_or_dir if str(arg) not in data]
    # pytest looks into folders test* of its own accord; of a folder in this table it takes the conftests as known.
    for folder in folders:
        config.pluginmanager._dirpath2confmods.setdefault(folder, [])


def _folder_of(dump: Path) -> Path:
    """The folder that was given, or in which a capture wrote this file."""
    place = archive.split(dump)
    dump = dump if place is None else place[0]
    folder = dump if os.path.isdir(dump) else dump.parent
    while folder != dump and _CAPTURED.fullmatch(folder.name):
        folder = folder.parent
    return folder


def _absolute(base: Path, arg: str) -> Path:
    return Path(os.path.normpath(base / os.path.expanduser(arg.partition("::")[0])))


def _asked(base: Path, texts: Iterable[str]) -> list[Path]:
    """The dumps that the option names; without any the settings say so later."""
    found = []
    for text in texts:
        with suppress(DumpError):
            found += expand_pattern(_absolute(base, text))
    return found


def _is_data(path: Path) -> bool:
    """Readers of the project's own are not known yet; a JSON file that none knows is a damaged dump."""
    return path.suffix == ".json" or (
        path.suffix != ".py" and path.is_file() and (is_recognised(path) or archive.is_archive(path))
    )
