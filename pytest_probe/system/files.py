"""Files read and written whole.

A file to read must have an end: a read of a FIFO, a socket or a device might never return. A file to write gets its
content under another name and is then renamed, so nobody ever reads half of it.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def special_kind(path: Path) -> str:
    """What the path is, where it is neither a file nor a folder: "a FIFO"; else "". Raises OSError."""
    mode = os.stat(path).st_mode
    return next((name for is_such, name in _KINDS if is_such(mode)), "")


def check_replaceable(path: Path) -> None:
    """Raises OSError where the path is a folder or a device: a new file would replace the device."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and special_kind(path):
        raise OSError(errno.EINVAL, f"it is {special_kind(path)}", str(path))


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading. Raises OSError, also for what is no file."""
    kind = special_kind(path)
    if kind:
        raise OSError(errno.EINVAL, f"it is {kind}", str(path))
    return path.open("rb")


def temporary_path(path: Path) -> Path:
    """A hidden name in the same folder that no other process uses."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name to write under. The file replaces the one at path when the block ends; after an error nothing is left.

    Raises OSError.
    """
    temporary = temporary_path(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one system call, and rename it. Raises OSError; then the file that was there is unchanged."""
    temporary = temporary_path(path)
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
