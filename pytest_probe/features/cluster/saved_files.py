"""Files of --probe-save, which come from nodes piece by piece: they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_probe.plugin.reproduce import NOT_SAVED
from pytest_probe.system.files import temporary_path


class SavedFiles:
    """The files of the case that a shard runs. They have their names once the case has its result."""

    def __init__(self) -> None:
        self._arriving: dict[Path, Path] = {}
        self._failure = ""

    def add(self, path: Path, piece: bytes) -> None:
        temporary = self._arriving.setdefault(path, temporary_path(path))
        if not self._failure:
            with self._noted(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("ab") as file:
                    file.write(piece)

    def save(self) -> str:
        """Give the files their names. Says why not all have them, as `save` of a process that sees the folder."""
        for path, temporary in self._arriving.items():
            if not self._failure:
                with self._noted(path):
                    temporary.replace(path)
        failure = self._failure
        self.drop()
        return failure

    def drop(self) -> None:
        """Remove the files of a case that has no result."""
        for temporary in self._arriving.values():
            with suppress(OSError):
                temporary.unlink()
        self._arriving, self._failure = {}, ""

    @contextmanager
    def _noted(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failure = f"{NOT_SAVED}{path} cannot be written ({error.strerror})"
