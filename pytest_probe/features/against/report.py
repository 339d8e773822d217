"""What a run of two dumps says at its end: the first own error of each rank and step, and how errors go on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.model.pairing import Paired, Status
from pytest_probe.model.result import PortableId, Result, number
from pytest_probe.records.labels import natural_order
from pytest_probe.reports.terminal import count, wrap

# What is an error of a call's own, or may be.
SUSPECT: Sequence[Status] = ("own", "arguments", "differs", "replicas")
UNCOMPARED: Sequence[Status] = ("unmatched", "incomparable")
_BLOCKS = "▁▂▃▄▅▆▇█"
# Relative errors that the lowest and the highest block stand for, as powers of 10.
_LOWEST, _HIGHEST = -8.0, 0.0
_LEAST, _MOST = 10.0**_LOWEST, 10.0**_HIGHEST


class _Row(Struct, frozen=True):
    id: PortableId
    place: int
    paired: Paired
    reason: str
    verdict: str

    @property
    def backward(self) -> bool:
        return self.id.direction == "backward"

    @property
    def is_wrong(self) -> bool:
        return self.verdict == "error" and self.paired.status != "unmatched"


class Report(Struct):
    """Collects results as they come, in any order."""

    rows: list[_Row] = field(default_factory=list)

    def add(self, result: Result) -> None:
        if result.against is None:
            return
        paired, place = replace(result.against, rows=()), -1 if result.place is None else result.place
        self.rows.append(_Row(result.portable_id, place, paired, result.reason, result.verdict))

    @property
    def alarm(self) -> str:
        same = bool(self.rows) and all(row.paired.status == "equal" for row in self.rows)
        return "all pairs are equal: are A and B two dumps?" if same else ""

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        for where, rows in self._by_dump():
            yield from self._of_dump(where, rows, width)

    def first_differences(self, width: int) -> Iterator[str]:
        """Where the sides of each dump without an own error differ first."""
        for where, rows in self._by_dump():
            row = next((row for row in rows if row.paired.status in ("rounding", "inherited")), None)
            if row is None or any(each.is_wrong or each.paired.status in SUSPECT for each in rows):
                continue
            by_rounding = row.paired.status == "rounding"
            why = row.reason or ("by rounding" if by_rounding else "and no compared call before it does")
            words = f"{where}no own error; sides first differ in {row.id.name}, {why}"
            yield from wrap(words, "    ", width=width)

    def _by_dump(self) -> Iterator[tuple[str, Sequence[_Row]]]:
        labels = sorted({row.id.label for row in self.rows}, key=lambda label: natural_order(Path(label)))
        for label in labels:
            rows = _in_order([row for row in self.rows if row.id.label == label])
            yield f"{label}: " if len(labels) > 1 else "", rows

    def _of_dump(self, where: str, rows: Sequence[_Row], width: int) -> Iterator[str]:
        wrong = next((row for row in rows if row.is_wrong), None)
        suspect = next((row for row in rows if row.paired.status in SUSPECT and not row.is_wrong), None)
        for what, first in (("first own error", wrong), ("first suspect", suspect)):
            if first is not None:
                reason = first.reason.removeprefix("suspect: ")
                yield from wrap(f"{where}{what}: {first.id.name}: {reason}", "    ", width=width)
                paired = first.paired
                at = " in ".join(filter(None, (f"at {paired.line}" if paired.line else "", paired.module)))
                place = "; ".join(filter(None, (at, paired.sources)))
                for line in filter(None, (place, _advice(first))):
                    yield from wrap(line, "    ", "  ", width)
        leaves = [row for row in rows if row.paired.leaves]
        if leaves:
            more = f" (and of {count(len(leaves) - 1, 'call')} more)" if leaves[1:] else ""
            words = f"no recorded call made, and that differ: {leaves[0].paired.leaves} of {leaves[0].id.name}{more}"
            yield from wrap(f"{where}inputs that {words}; look at weights and data", "    ", width=width)
        gaps = [number(row.paired.gap) for row in rows if row.paired.status != "random"]
        if any(gaps):
            yield f"{where}relative difference along {count(len(gaps), 'call')}, from {_LEAST:.0e} to {_MOST:.0e}:"
            yield f"  {blocks(gaps, min(width, 100) - 4)}"


def _in_order(rows: Sequence[_Row]) -> list[_Row]:
    """As the program ran: forward, backward in reverse, and what stands behind the last call with a backward, as the
    optimizer's step does."""
    last = max((row.place for row in rows if row.backward), default=-1)

    def order(row: _Row) -> tuple[int, int]:
        if row.backward:
            return 1, -row.place
        return (0 if last < 0 or row.place <= last else 2), row.place

    placed, others = ([row for row in rows if (row.place >= 0) == known] for known in (True, False))

    # Modules have no place among calls.
    return [*sorted(placed, key=order), *others]


def _advice(row: _Row) -> str:
    """What to look at."""
    if row.paired.status == "replicas":
        return "ranks should hold the same here: look at what they received, and at this rank's memory"
    if row.paired.status == "arguments":
        return "both are right for what they were asked: look at the settings of both programs"
    if row.verdict == "warning":
        return "the dumps do not hold what a replay needs: record API calls with tensors (--task tensor) to know"
    side = f"of {row.paired.suspect}" if row.paired.suspect else "of the call"
    if "running_" in row.reason:
        return f"running statistics: look at how the normalization {side} updates them"
    if row.backward:
        return f"a gradient that its inputs do not explain: look at the backward {side}"
    return f"an output that its inputs do not explain: look at the implementation {side}"


def blocks(gaps: Sequence[float], width: int) -> str:
    """A line of blocks, as high as the logarithm of the largest error of their calls; "·" where all are equal."""
    per = max(1, -(-len(gaps) // max(width, 1)))
    found = ""
    for start in range(0, len(gaps), per):
        gap = max(gaps[start : start + per])
        power = min(max(math.log10(gap), _LOWEST), _HIGHEST) if 0 < gap < math.inf else _HIGHEST
        place = round((power - _LOWEST) / (_HIGHEST - _LOWEST) * (len(_BLOCKS) - 1))
        found += _BLOCKS[place] if gap > 0 else "·"
    return found
