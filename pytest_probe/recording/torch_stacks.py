"""Where calls come from: a number for each stack of Python frames."""

from __future__ import annotations

import functools
import linecache
import os
from types import CodeType, FrameType

import torch

# What stands between the program and torch while it is recorded.
_OURS = os.path.join(os.path.dirname(__file__), "")
_CHECKPOINT = ("torch/utils/checkpoint.py", "torch\\utils\\checkpoint.py")


class Stacks:
    """Numbers for stacks: the same one for the same callers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._frames: list[list[tuple[CodeType, int]]] = []
        # For each stack: does torch's activation checkpointing stand in it?
        self._checkpoints: list[bool] = []
        self._lines: list[list[str]] = []

    def number(self, first: FrameType) -> int:
        """The number of the stack whose innermost frame this is."""
        key: list[int] = []
        frame: FrameType | None = first
        while frame is not None:
            # Hashing a code object would read all of it. `_frames` keeps it alive, so that its address stays its own.
            key.append(id(frame.f_code))
            key.append(frame.f_lasti)
            frame = frame.f_back
        known = tuple(key)
        number = self._numbers.get(known)
        if number is None:
            number = self._numbers[known] = self._new(first)
        return number

    def _new(self, first: FrameType) -> int:
        frames = []
        frame: FrameType | None = first
        while frame is not None:
            if not frame.f_code.co_filename.startswith(_OURS):
                frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        self._frames.append(frames)
        self._checkpoints.append(any(code.co_filename.endswith(_CHECKPOINT) for code, _ in frames))
        return len(self._frames) - 1

    def recomputes(self, number: int) -> bool:
        """Does a checkpoint compute here again, inside a backward, what it forgot? Unknown (-1) stacks do not tell."""
        return number >= 0 and self._checkpoints[number] and torch._C._current_graph_task_id() >= 0

    def lines(self) -> dict[int, list[str]]:
        """All stacks as stack.json shows them, innermost frame first."""
        for frames in self._frames[len(self._lines) :]:
            self._lines.append([_line(*frame) for frame in frames])
        return dict(enumerate(self._lines))


@functools.lru_cache(65536)
def _line(code: CodeType, line: int) -> str:
    source = linecache.getline(code.co_filename, line).strip()
    return f"File {code.co_filename}, line {line}, in {code.co_name}, \n {source}"
