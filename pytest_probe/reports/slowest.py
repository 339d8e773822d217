"""The slowest cases of a run, and what their time went to: with pytest's --durations."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from pytest_probe.model.measurement import PARTS
from pytest_probe.model.result import Result

if TYPE_CHECKING:
    import pytest

# Of a column: the longest name of a part, and two blanks.
_WIDTH = max(map(len, PARTS)) + 2


class Slowest:
    """The slowest cases so far: as many as count says, all where it is 0, none where it is None. least: the shortest
    duration, in seconds, that is shown."""

    def __init__(self, count: int | None, least: float) -> None:
        self._count, self._least = count, least
        self._found: list[tuple[float, str, tuple[float, ...]]] = []

    def add(self, result: Result) -> None:
        if self._count is None or result.duration < self._least or not result.parts:
            return
        case = result.duration, result.id, tuple(result.parts.get(part, 0.0) for part in PARTS)
        if self._count and len(self._found) >= self._count:
            heapq.heappushpop(self._found, case)
        else:
            heapq.heappush(self._found, case)

    def write(self, reporter: pytest.TerminalReporter) -> None:
        """A table, the slowest case first."""
        if not self._found:
            return
        reporter.write_sep("=", "slowest cases of the probe, in seconds")
        reporter.write_line(_row("total", *PARTS, "case"))
        for duration, id, parts in sorted(self._found, reverse=True):
            reporter.write_line(_row(*(f"{seconds:.3f}" for seconds in (duration, *parts)), id))


def _row(*cells: str) -> str:
    *numbers, case = cells
    return "".join(f"{cell:>{_WIDTH}}" for cell in numbers) + f"  {case}"
