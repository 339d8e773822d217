"""The files of one step: a JSON object that is whole at every moment, and those that are written at its end.

New entries and new closing braces overwrite the old closing braces in one call.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.system.files import write_whole

_encode = msgspec.json.Encoder().encode
# Closes the growing object and the file's; the next members are written over it.
TAIL = b"\n}}\n"


class GrowingFile:
    """A JSON object whose last member is an object that grows: after each `add` the file can be read as a whole.

    Every member comes with the closing braces, over those before it, in one write: a process that is killed leaves
    whole members. Raises OSError; what was there before a failure stays and is closed.
    """

    def __init__(self, path: Path, header: dict[str, Any], growing: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o644)
        head = json.dumps(header, ensure_ascii=False).removesuffix("}") + f', "{growing}": {{'
        self._end = 0
        self._write(head.encode())
        self._empty = True

    def add(self, members: list[tuple[str, bytes]]) -> None:
        """Append members: names, and values as JSON."""
        text = b",\n".join(b"%b: %b" % (_encode(name), body) for name, body in members)
        self._write((b"\n" if self._empty else b",\n") + text)
        self._empty = False

    def _write(self, data: bytes) -> None:
        whole = data + TAIL
        try:
            done = 0
            while done < len(whole):
                done += os.pwrite(self._file, whole[done:], self._end + done)
        except OSError:
            os.ftruncate(self._file, self._end + len(TAIL) if self._end else 0)
            if self._end:
                os.pwrite(self._file, TAIL, self._end)
            raise
        self._end += len(data)

    def close(self) -> None:
        os.close(self._file)


def write_json(path: Path, content: Any) -> None:
    """Write a file as a whole. Raises OSError."""
    try:
        text = _encode(content)
    except UnicodeEncodeError:  # names of files may hold bytes that are no text
        text = json.dumps(content, ensure_ascii=False).encode(errors="backslashreplace")
    write_whole(path, text)
