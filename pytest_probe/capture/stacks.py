"""Where calls come from: a number for each stack of Python frames."""

from __future__ import annotations

import functools
import itertools
import linecache
import os
from collections.abc import Callable, Hashable
from types import CodeType, FrameType

from pytest_probe.capture import kernel
from pytest_probe.capture.call_sites import STANDING_IN

# What stands here between the program and a framework.
_HERE = os.path.join(os.path.dirname(__file__), "")


class CallStacks:
    """Numbers for stacks: the same one for the same callers.

    ours is the folder of what else stands between the program and the framework while it is recorded; again tells of a
    code object whether what it calls may be computed again, as activation checkpointing does, and going whether that
    goes on now, inside a backward.
    """

    def __init__(self, ours: str, again: Callable[[CodeType], bool], going: Callable[[], bool]) -> None:
        self._ours = (ours, _HERE)
        self._again = again
        self._going = going
        # Addresses stand for code objects, which `_frames` keeps alive: hashing one would read all of it.
        self._key: Callable[[FrameType], Hashable] = _key if kernel.compiled is None else kernel.compiled.stack
        self._numbers: dict[Hashable, int] = {}
        # Threads may meet new stacks at once, and a signal may end the making of one at any place.
        self._next = itertools.count()
        self._frames: dict[int, list[tuple[CodeType, int]]] = {}
        # The stacks in which activation checkpointing stands.
        self._checkpoints: set[int] = set()
        self._lines: dict[int, list[str]] = {}

    def number(self, first: FrameType) -> int:
        """The number of the stack whose innermost frame this is."""
        known = self._key(first)
        number = self._numbers.get(known)
        if number is None:
            number = self._numbers[known] = self._new(first)
        return number

    def _new(self, first: FrameType) -> int:
        frames = []
        frame: FrameType | None = first
        while frame is not None:
            if not frame.f_code.co_filename.startswith(self._ours) and frame.f_code not in STANDING_IN:
                frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        number = next(self._next)
        self._frames[number] = frames
        if any(self._again(code) for code, _ in frames):
            self._checkpoints.add(number)
        return number

    def recomputes(self, number: int) -> bool:
        """Does a checkpoint compute here again, inside a backward, what it forgot? Unknown (-1) stacks do not tell."""
        return number in self._checkpoints and self._going()

    def lines(self) -> dict[int, list[str]]:
        """All stacks as stack.json shows them, innermost frame first."""
        for number in self._frames.keys() - self._lines.keys():
            self._lines[number] = [_line(*frame) for frame in self._frames[number]]
        return self._lines


def _key(first: FrameType) -> tuple[int, ...]:
    """As the kernel's, of Python's numbers."""
    key: list[int] = []
    frame: FrameType | None = first
    while frame is not None:
        key.append(id(frame.f_code))
        key.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(key)


@functools.lru_cache(65536)
def _line(code: CodeType, line: int) -> str:
    source = linecache.getline(code.co_filename, line).strip()
    return f"File {code.co_filename}, line {line}, in {code.co_name}, \n {source}"
