"""The folder that a capture writes to: it holds the dump of one run, whose processes may write side by side."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from errno import ENOTDIR
from pathlib import Path
from tempfile import TemporaryFile

from pytest_probe.errors import SettingsError
from pytest_probe.model.dump import TENSOR_FOLDER

# The folders that this run has taken: the processes that it starts write there as well.
TAKEN = "PYTEST_PROBE_CAPTURE"
_FILES = ("dump.json", "stack.json", "construct.json")
_PROCESS = re.compile(r"(proc|rank)(\d{1,18})")
# PaddleAPEX's layout: a folder for each step of a rank, with these files and tensors next to them.
_APEX = re.compile(r"rank(\d{1,18})_step\d{1,18}")
_APEX_FILES = ("forward_rank*_*.json", "*.pt")


class FolderTaken(SettingsError):
    """An earlier run's dump lies where a capture shall write."""

    def __init__(self, option: str, folder: str, found: Path, way_out: str) -> None:
        words = (
            f"it holds the dump of an earlier run ({found.parent.name}/{found.name}); give another folder, or {way_out}"
        )
        super().__init__(option, folder, words)
        self.folder = folder
        self.found = found


def check_usable(option: str, folder: str) -> None:
    """Raises SettingsError where a folder cannot be made, or nothing can be written in it: before a program runs."""
    path = Path(folder).absolute()
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    try:
        if not there.is_dir():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR))
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        wanted = f"give a folder that can be written: {there}: {error.strerror or error}"
        raise SettingsError(option, folder, wanted) from None


def take(folder: str, rank: int | None, ranks: int, *, overwrite: bool) -> None:
    """Take the folder for this run; overwrite: remove what an earlier one left. rank: this process among so many that
    train together, each of which removes its own share. Raises FolderTaken, or SettingsError for a dump that cannot be
    removed."""
    path = os.path.abspath(folder)
    taken = os.environ.get(TAKEN, "").split(os.pathsep)
    for found in _earlier(Path(path), rank, ranks, ours=path in taken):
        if not overwrite:
            raise FolderTaken("dump_path", folder, found, "replace it with overwrite=True")
        try:
            _remove(found)
        except OSError as error:
            raise SettingsError("dump_path", str(found), f"it cannot be removed ({error.strerror})") from None
    if path not in taken:
        os.environ[TAKEN] = os.pathsep.join([*filter(None, taken), path])


def _earlier(folder: Path, rank: int | None, ranks: int, *, ours: bool) -> Iterator[Path]:
    """Folders of other processes with a dump, next to which this process must not write."""
    for path in sorted(folder.glob("rank*_step*")):
        match = _APEX.fullmatch(path.name)
        if match is None or not any(path.glob(_APEX_FILES[0])):
            continue
        # Processes that do not train together write as rank 0, also processes that the program starts.
        if int(match[1]) % max(ranks, 1) == rank or (rank is None and not ours):
            yield path
    for path in sorted(folder.glob("step*/*")):
        match = _PROCESS.fullmatch(path.name)
        if match is None or not (path / _FILES[0]).is_file():
            continue
        kind, number = match[1], int(match[2])
        if kind == "rank" and rank is not None:
            # A folder of another rank may belong to this run. If an earlier run had more ranks, the present ranks share
            # its folders.
            if number % max(ranks, rank + 1) == rank:
                yield path
        elif not ours or number == os.getpid():
            yield path


def _remove(process: Path) -> None:
    """Remove a dump, and the folders that are empty then."""
    for name in _FILES:
        (process / name).unlink(missing_ok=True)
    if _APEX.fullmatch(process.name):
        for pattern in _APEX_FILES:
            for file in process.glob(pattern):
                file.unlink()
    if (process / TENSOR_FOLDER).is_dir():
        shutil.rmtree(process / TENSOR_FOLDER)
    for folder in (process, process.parent):
        with suppress(OSError):
            folder.rmdir()
