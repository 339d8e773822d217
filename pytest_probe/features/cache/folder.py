"""The folder of --probe-cache: files by digest, the least recently used go first."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from pytest_probe.features.cache.entry import PART, Entry, Part

SUFFIX = ".reference"
# Of the bound: what is written until the folder is counted again, since other processes write as well; and how much
# stays when it is full.
COUNTED_AFTER, LEFT = 1 / 64, 7 / 8
# Seconds after which a part belongs to a process that was killed.
ABANDONED = 3600.0


class _File(NamedTuple):
    used: float
    size: int
    path: str


class Folder(Struct):
    """Files of at most `size` bytes in all; several processes may use it at once."""

    path: Path
    size: int
    _total: int | None = field(default=None)
    _written: int = field(default=0)

    def entry(self, name: str) -> Entry | None:
        """The file of this name, which counts as used now; None where there is none, or a damaged one."""
        path = self._path(name)
        found = Entry.read(path)
        if found is not None:
            with suppress(OSError):  # gone meanwhile, or another user's
                os.utime(path)
        return found

    def begin(self) -> Part:
        """Raises OSError."""
        return Part.begun(self.path)

    def keep(self, part: Part, name: str) -> None:
        """Give a part its name, where it fits into the bound. Raises OSError."""
        if part.size > self.size * LEFT:
            part.discard()
            return
        part.finish(self._path(name))
        added = os.path.getsize(self._path(name))
        self._written += added
        self._total = None if self._total is None else self._total + added
        if self._total is None or self._total > self.size or self._written > self.size * COUNTED_AFTER:
            self._total, self._written = self._bound(), 0

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{SUFFIX}"

    def _bound(self) -> int:
        """Count the folder, and remove what is too much. Gives the bytes that are left."""
        files = sorted(self._files())
        total = sum(file.size for file in files)
        for file in files if total > self.size else ():
            if total <= self.size * LEFT:
                break
            total -= file.size if _removed(file.path) else 0
        return total

    def _files(self) -> Iterator[_File]:
        """Those that are whole; parts that nobody writes any more are removed."""
        now = time.time()
        with os.scandir(self.path) as found:
            for each in found:
                if not each.name.endswith((SUFFIX, PART)):
                    continue
                try:
                    status = each.stat()
                except OSError:
                    continue  # removed by another process
                if each.name.endswith(SUFFIX):
                    yield _File(status.st_mtime, status.st_size, each.path)
                elif now - status.st_mtime > ABANDONED:
                    _removed(each.path)


def _removed(path: str) -> bool:
    """Is the file gone? Some systems keep what a process has open."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
