"""Files that are whole whenever somebody reads them: written under another name, and renamed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def beside(path: Path) -> Path:
    """A hidden name in the same folder, which no other process takes."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name to write under. The file replaces the one at path when the block ends; after an error nothing is left.

    Raises OSError.
    """
    temporary = beside(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one system call, and rename it. Raises OSError; then what was there before stays."""
    temporary = beside(path)
    file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    try:
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(file, left) :]
        finally:
            os.close(file)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
