"""A lock that lasts as long as a file is open in a process: its death, of whatever kind, ends it."""

from __future__ import annotations

import sys
from typing import IO, Any

# Behind whatever the file will hold: Windows refuses others to read what is locked.
_FAR = 1 << 62


def locked(file: IO[Any]) -> bool:
    """Lock this file, until it is closed; False where another process, or another open file of this one, has it.

    Raises OSError where the file system knows no locks.
    """
    try:
        _lock(file)
    except (BlockingIOError, PermissionError):
        return False
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[Any]) -> None:
        end = file.tell()
        file.seek(_FAR)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        finally:
            file.seek(end)

else:
    import fcntl

    def _lock(file: IO[Any]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
