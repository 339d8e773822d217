"""Files read and written whole.

A file to read must have an end: a read of a FIFO, a socket or a device might never return. A file to write gets its
content under another name and is then renamed, so nobody ever reads half of it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

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
    """The file, open for reading. Raises OSError, also for anything but a file."""
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


# Locks that end with the process that holds them, however it dies: on a file, and on a device.
#
# A device's lock has two bytes. Every process passes the first, the door, to reach the second, the room. Processes that
# share the device hold the room together; one that runs alone holds both, so that no other can enter.


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


def lock_or_assume(file: IO[Any]) -> bool:
    """As try_lock; True on a file system without locks, where nobody knows who writes."""
    try:
        return try_lock(file)
    except OSError:
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
