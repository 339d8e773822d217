"""Locks that end with the process that holds them, however it dies: on a file, and on a device.

A device's lock has two bytes. Every process passes the first, the door, to reach the second, the room. Processes that
share the device hold the room together; one that runs alone holds both, so that no other can enter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

# A byte beyond any file's end: Windows lets nobody else read locked bytes.
_FAR = 1 << 62


def try_lock(file: IO[Any]) -> bool:
    """Lock this file, until it is closed; False where another process, or another open file of this one, has it.

    Raises OSError where the file system knows no locks.
    """
    try:
        _lock_file(file)
    except (BlockingIOError, PermissionError):
        return False
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock_file(file: IO[Any]) -> None:
        end = file.tell()
        file.seek(_FAR)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        finally:
            file.seek(end)

else:
    import fcntl

    def _lock_file(file: IO[Any]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Bytes of the file. Whoever waits for the room alone holds the door meanwhile, so newcomers cannot overtake it.
_DOOR, _ROOM = 0, 1


class DeviceLock:
    """The file that all processes on a device lock. The context `waiting` is entered while this process waits.

    Raises OSError where the system has no such locks: Windows, and some network disks.
    """

    def __init__(self, path: Path, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        if sys.platform == "win32":
            raise OSError("no locks that several processes can share")
        path.parent.mkdir(parents=True, exist_ok=True)
        # POSIX drops all locks of a process on a file when it closes any handle of it: this one stays open.
        self._file = path.open("ab+")
        self._waiting = waiting
        self._drop(_ROOM)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """In this context the process uses the device, and others may."""
        self._take(_DOOR)
        try:
            self._take(_ROOM, shared=True)
        finally:
            self._drop(_DOOR)
        try:
            yield
        finally:
            self._drop(_ROOM)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """In this context no other process uses the device."""
        self._take(_DOOR)
        try:
            self._take(_ROOM)
            yield
        finally:
            self._drop(_ROOM)
            self._drop(_DOOR)

    def others_wait(self) -> bool:
        """Does another process wait for exclusive use?"""
        if not self._try(_DOOR):
            return True
        self._drop(_DOOR)
        return False

    if sys.platform != "win32":
        import fcntl as _fcntl

        def _take(self, byte: int, *, shared: bool = False) -> None:
            if not self._try(byte, shared=shared):
                with self._waiting():
                    self._lock(byte, self._how(shared))

        def _try(self, byte: int, *, shared: bool = False) -> bool:
            try:
                self._lock(byte, self._how(shared) | self._fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return False
            return True

        def _how(self, shared: bool) -> int:
            return self._fcntl.LOCK_SH if shared else self._fcntl.LOCK_EX

        def _drop(self, byte: int) -> None:
            self._lock(byte, self._fcntl.LOCK_UN)

        def _lock(self, byte: int, how: int) -> None:
            self._fcntl.lockf(self._file, how, 1, byte)
