"""Where an API was called from: the stack file beside a dump."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.model.dump import Frame
from pytest_probe.records import lazy_json
from pytest_probe.system.text import printable, printable_line

# As traceback prints a frame: `File FILE, line 7, in FUNCTION, ` and the code in the next line. 9 digits are more than
# any file has lines, and no int too long to parse.
_FILE, _LINE = "File ", re.compile(r", line (\d{1,9}), in ")
# The layout in which one stack serves several entries.
_SHARED = re.compile(rb"\s*\[\s*\[")
# Where code lies that a user did not write; and the capture's own frames in a source tree.
_INSTALLED = re.compile(r"^<frozen |[/\\](site-packages|dist-packages|lib/python3[^/]*|Python3\d*\\Lib)[/\\]", re.I)
_TOOLS = re.compile(r"[/\\](msprobe|ptdbg_ascend|api_accuracy_checker|torch|torch_npu)[/\\]")
# Frames that are kept, since the calls of a program share most of theirs.
_KEPT = 4096


class StackFile:
    """The frames of every entry, read from a stack.json when they are first asked for.

    Both layouts are known: {entry: frames}, and {number: [[entry, ...], frames]}. A file that is missing or damaged,
    or an entry that it lacks, gives no frames and never an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, entry: str) -> tuple[Frame, ...]:
        """The frames of an entry, innermost first; a backward entry has those of its forward."""
        raw = self._raw.get(entry)
        if raw is None and entry.endswith(".backward"):
            raw = self._raw.get(f"{entry.removesuffix('.backward')}.forward")
        lines = None if raw is None else _decode(raw, list[Any])
        return tuple(frame for line in lines or () if (frame := _frame(line)))

    @cached_property
    def _raw(self) -> Mapping[str, msgspec.Raw]:
        try:
            found = lazy_json.parse(lazy_json.read_bytes(self.path))
        except (OSError, ValueError, RecursionError):
            return {}
        if not found or not _SHARED.match(next(iter(found.values()))):
            return found
        groups = (_decode(raw, tuple[list[str], msgspec.Raw]) for raw in found.values())
        return {entry: group[1] for group in groups if group for entry in group[0]}


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code: outside installed packages, the standard library and the capture.

    A folder of the user's may be called torch: only where nothing else is left, its frames count.
    """
    own = [frame for frame in frames if not _is_installed(frame.file)]
    return next((frame for frame in own if not _TOOLS.search(frame.file)), own[0] if own else None)


@lru_cache(_KEPT)
def _is_installed(file: str) -> bool:
    return _INSTALLED.search(file) is not None


def _decode(raw: msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError):
        return None


def _frame(line: object) -> Frame | None:
    return _frame_of(line) if isinstance(line, str) else None


@lru_cache(_KEPT)
def _frame_of(line: str) -> Frame | None:
    place, newline, code = line.partition("\n")
    match, place = _LINE.search(place), place.rstrip(" ")
    if not (newline and match and place.startswith(_FILE) and place.endswith(",")):
        return None
    file, function = place[len(_FILE) : match.start()], place[match.end() : -1]
    return Frame(printable_line(file), int(match[1]), printable_line(function), printable(code.strip()))
