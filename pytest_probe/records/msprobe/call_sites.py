"""Where an API was called from: frames from stack.json, modules from construct.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.model.dump import Frame
from pytest_probe.records import raw_json
from pytest_probe.records.msprobe.entries import MODULES, as_written
from pytest_probe.system.text import printable, printable_line

# As traceback prints a frame: `File FILE, line 7, in FUNCTION, ` and the code in the next line. 9 digits suffice for
# any file, and keep int() from a number too long to parse.
_FILE, _LINE = "File ", re.compile(r", line (\d{1,9}), in ")
# The layout in which one stack serves several entries.
_SHARED = re.compile(rb"\s*\[\s*\[")
# Folders of installed code; and of the capture's own frames in a source tree.
_INSTALLED = re.compile(r"^<frozen |[/\\](site-packages|dist-packages|lib/python3[^/]*|Python3\d*\\Lib)[/\\]", re.I)
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")
_TOOLS = re.compile(r"[/\\](msprobe|ptdbg_ascend|api_accuracy_checker|torch|torch_npu|mindspore)[/\\]")
# Frames in the cache: the calls of a program share most of theirs.
_CACHED_FRAMES = 4096


class StackFile:
    """The frames of every entry, read from a stack.json at the first call.

    Both layouts are known: {entry: frames}, and {number: [[entry, ...], frames]}. A missing or damaged file, or a
    missing entry, gives no frames and never an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, entry: str) -> tuple[Frame, ...]:
        """The frames of an entry, innermost first; a backward entry has the frames of its forward."""
        raw = self._raw.get(as_written(entry))
        if raw is None and entry.endswith(".backward"):
            raw = self._raw.get(as_written(f"{entry.removesuffix('.backward')}.forward"))
        lines = None if raw is None else _decode(raw, list[Any])
        return tuple(frame for line in lines or () if isinstance(line, str) and (frame := _frame_of(line)))

    @cached_property
    def _raw(self) -> Mapping[str, msgspec.Raw]:
        found = _members(self.path)
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


def library_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of another library, for example a model's: inside the user's own code, outside the
    framework."""
    for frame in frames:
        if not _is_installed(frame.file):
            return None
        if _PACKAGES.search(frame.file) and not _TOOLS.search(frame.file):
            return frame
    return None


def _members(path: Path) -> dict[str, msgspec.Raw]:
    try:
        return raw_json.parse(raw_json.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}


@lru_cache(_CACHED_FRAMES)
def _is_installed(file: str) -> bool:
    return _INSTALLED.search(file) is not None


def _decode(raw: msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError):
        return None


@lru_cache(_CACHED_FRAMES)
def _frame_of(line: str) -> Frame | None:
    place, newline, code = line.partition("\n")
    match, place = _LINE.search(place), place.rstrip(" ")
    if not (newline and match and place.startswith(_FILE) and place.endswith(",")):
        return None
    file, function = place[len(_FILE) : match.start()], place[match.end() : -1]
    return Frame(printable_line(file), int(match[1]), printable_line(function), printable(code.strip()))


class _Probe(msgspec.Struct, frozen=True):
    module: str = ""


class _Placed(msgspec.Struct, frozen=True):
    """What an entry says of the module that made its call."""

    probe: _Probe = _Probe()


_DIRECTIONS = ("forward", "backward")
# Modules inside one another that are followed: the file is untrusted.
_DEEPEST = 100


class ConstructFile:
    """The modules around every entry, read from a construct.json at the first call; where it has none, the path in the
    entry itself, as our own captures of APIs alone have it. A missing or damaged file, or a missing entry, gives no
    modules and never an error."""

    def __init__(self, path: Path, entries: Mapping[str, msgspec.Raw]) -> None:
        self.path = path
        self._entries = entries

    def __call__(self, entry: str) -> tuple[str, ...]:
        """The modules that an entry's call was made in, innermost first; a backward entry that has none has the modules
        of its forward."""
        found: list[str] = []
        both = entry, f"{entry.removesuffix('.backward')}.forward"
        parent = next(filter(None, (self._parents.get(as_written(each)) for each in both)), None)
        if parent is None:
            own = (_decode(raw, _Placed) for each in both if (raw := self._entries.get(as_written(each))) is not None)
            parent = next((each.probe.module for each in own if each and each.probe.module), None)
        while parent is not None and parent not in found and len(found) < _DEEPEST:
            found.append(parent)
            parent = self._parents.get(parent)
        return tuple(map(printable_line, found))

    @cached_property
    def _parents(self) -> Mapping[str, str | None]:
        # Megatron's entries are a list of the module and a step.
        found = ((entry, _decode(raw, Any)) for entry, raw in _members(self.path).items())
        firsts = ((entry, value[0] if isinstance(value, list) and value else value) for entry, value in found)
        return {entry: value if isinstance(value, str) else None for entry, value in firsts}


def module_path(module: str) -> str:
    """The path of a module of the name "Module.layers.0.Attention.forward.3", "layers.0"; its class where it is the
    whole model."""
    parts = module.split(".")
    ends = [place for place, part in enumerate(parts) if part in _DIRECTIONS]
    if parts[0] not in MODULES or not ends:
        return module
    path = parts[1 : ends[-1]]
    return ".".join(path[:-1] or path)
