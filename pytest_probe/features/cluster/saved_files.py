"""Files of --probe-save, which come from nodes piece by piece: they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_probe.plugin.reproduce import NOT_SAVED
from pytest_probe.system.files import temporary_path


class SavedFiles:
    """The files of the case that each shard runs. They have their names once the case has its result."""

    def __init__(self) -> None:
        # By the numbers of shards: files by their paths, and why one cannot be written.
        self._arriving: dict[int, dict[Path, Path]] = {}
        self._failures: dict[int, str] = {}

    def add(self, shard: int, path: Path, piece: bytes) -> None:
        temporary = self._arriving.setdefault(shard, {}).setdefault(path, temporary_path(path))
        if shard not in self._failures:
            with self._noted(shard, path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("ab") as file:
                    file.write(piece)

    def save(self, shard: int) -> str:
        """Give the files their names. Says why not all have them, as `save` of a process that sees the folder."""
        for path, temporary in self._arriving.get(shard, {}).items():
            if shard not in self._failures:
                with self._noted(shard, path):
                    temporary.replace(path)
        failure = self._failures.get(shard, "")
        self.drop(shard)
        return failure

    def drop(self, shard: int) -> None:
        """Remove the files of a case that has no result."""
        self._failures.pop(shard, None)
        for temporary in self._arriving.pop(shard, {}).values():
            with suppress(OSError):
                temporary.unlink()

    def clear(self) -> None:
        for shard in tuple(self._arriving):
            self.drop(shard)

    @contextmanager
    def _noted(self, shard: int, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failures[shard] = f"{NOT_SAVED}{path} cannot be written ({error.strerror})"
