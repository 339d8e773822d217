"""What a process does to files, programs and networks, as the interpreter's audit events tell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Of each, the arguments that are paths.
_CHANGES = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.setxattr": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
    "shutil.rmtree": 1,
    "os.removexattr": 1,
}
_READS = ("os.listdir", "os.scandir", "os.chdir")
_NEVER = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.kill",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pickle.find_class",
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.sendto",
    "subprocess.Popen",
    "webbrowser.open",
    "urllib.Request",
)


class Watch:
    """Notes what touches anything but the folders of the run; on from `begin` to `end`.

    writable: the folders in which files may be made and changed; hidden: the folder that may not even be read.
    """

    def __init__(self, writable: tuple[Path, ...], hidden: Path) -> None:
        self._writable = tuple(map(os.path.realpath, writable))
        self._hidden = os.path.realpath(hidden)
        self._on, self._noted = False, list[str]()
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        self._on, self._noted = True, []

    def end(self) -> list[str]:
        self._on = False
        return self._noted

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event == "open":
            path, _, flags = args
            self._path(event, path, bool(flags & _WRITING))
        elif event in _CHANGES:
            for path in args[: _CHANGES[event]]:
                self._path(event, path, True)
        elif event in _READS:
            self._path(event, args[0], False)
        elif event in _NEVER:
            self._noted.append(f"{event} {args!r}"[:300])

    def _path(self, event: str, path: Any, writing: bool) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor, whose opening was heard
        try:
            real = os.path.realpath(os.fsdecode(path))
        except ValueError:
            return  # no path at all: a zero byte
        if (writing and real != os.devnull and not _lies_in(real, *self._writable)) or _lies_in(real, self._hidden):
            self._noted.append(f"{event} {path!r}, {'to write' if writing else 'to read'}"[:300])


def _lies_in(path: str, *folders: str) -> bool:
    return any(path == folder or path.startswith(f"{folder}{os.sep}") for folder in folders)
