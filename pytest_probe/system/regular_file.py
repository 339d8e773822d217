"""Files that can be read to their end: a FIFO, a socket or a device would be waited for without one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def special(path: Path) -> str:
    """What stands here, where it is neither a file nor a folder: "a FIFO"; else "". Raises OSError."""
    mode = os.stat(path).st_mode
    return next((name for is_such, name in _KINDS if is_such(mode)), "")


def check_replaceable(path: Path) -> None:
    """Raises OSError where a folder stands here, or what is no file: a new file would take the place of a device."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and special(path):
        raise OSError(errno.EINVAL, f"it is {special(path)}", str(path))


def opened(path: Path) -> BinaryIO:
    """The file, open for reading. Raises OSError, also for what is no file."""
    kind = special(path)
    if kind:
        raise OSError(errno.EINVAL, f"it is {kind}", str(path))
    return path.open("rb")
