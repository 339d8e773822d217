"""Which processes run on a device: many beside one another, or one alone. Whoever dies holds nothing any more.

The lock has two bytes. Cases share the first; who wants to be alone takes it exclusively, and also the second, so that
nobody new comes in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

# Bytes of the file. Everybody comes through the door; who stays in it keeps all others outside, so that the one who
# wants to be alone gets its turn.
_DOOR, _ROOM = 0, 1


class DeviceLock:
    """A file that all processes lock which share a device. waiting is entered while this one waits for others.

    Raises OSError where the system has no such locks: Windows, and some network disks.
    """

    def __init__(self, path: Path, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        if sys.platform == "win32":
            raise OSError("no locks that several processes can share")
        path.parent.mkdir(parents=True, exist_ok=True)
        # The system gives up a process's locks where any file of this path is closed: this one stays open.
        self._file = path.open("ab+")
        self._waiting = waiting
        self._drop(_ROOM)

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """This process runs on the device in here, and others may."""
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
    def alone(self) -> Iterator[None]:
        """No other process runs on the device in here."""
        self._take(_DOOR)
        try:
            self._take(_ROOM)
            yield
        finally:
            self._drop(_ROOM)
            self._drop(_DOOR)

    def wanted(self) -> bool:
        """Does another process wait to be alone?"""
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
