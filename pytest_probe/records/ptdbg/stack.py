"""Where an API was called from: the stack lines of a ptdbg dump."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pytest_probe.model.dump import Direction, Frame
from pytest_probe.records.ptdbg.lines import STACK, Entry, elements
from pytest_probe.system.text import printable, printable_line

_MAX_LINE = 999_999_999  # more than any file has lines


class Stacks(Struct, frozen=True):
    """The frames of every entry, decoded when they are asked for. What is no frame is left out, and never an error."""

    calls: Mapping[str, Mapping[Direction, Entry]]

    def __call__(self, entry: str) -> tuple[Frame, ...]:
        """The frames of an entry, innermost first; a backward entry has those of its forward."""
        name, _, direction = entry.rpartition(".")
        entries = self.calls.get(name, {})
        both = [entries[way].stack for way in ("backward", "forward") if way in entries]
        line = next(filter(None, both if direction == "backward" else both[-1:]), b"")
        decoded = elements(line) if line else None
        frames = decoded[1] if decoded is not None and len(decoded) == STACK else None
        return tuple(frame for item in frames if (frame := _frame(item))) if isinstance(frames, list) else ()


def _frame(item: Any) -> Frame | None:
    """[file, line number as text, function, source line]"""
    if not (isinstance(item, list) and len(item) == 4 and all(isinstance(part, str) for part in (*item[:1], item[2]))):
        return None
    file, number, function, code = item
    if not (isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) <= 9):
        return None
    return Frame(
        printable_line(file), min(int(number), _MAX_LINE), printable_line(function), printable(str(code).strip())
    )
