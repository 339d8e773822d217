"""What a run of two dumps says at its end: the first own error of each rank and step, and how errors go on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.errors import RecordError
from pytest_probe.features.against.compare import SIDES, Comparing, Together, directions_of
from pytest_probe.features.against.judging import Found
from pytest_probe.features.against.matching import Match
from pytest_probe.features.against.sides import statistics_gap
from pytest_probe.model.dump import Direction, Dump, Record
from pytest_probe.model.pairing import Paired, SideName, Status
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


# How many times as far as all before two sides lie apart where no rounding explains it.
_MORE = 16


class Unmatched:
    """The calls that one of two dumps has alone; what else they tell is decoded when a pair asks."""

    def __init__(self, comparing: Comparing, a: Dump, b: Dump, matches: Sequence[Match]) -> None:
        self._comparing, self._a, self._b = comparing, a, b
        in_order = ((*dump.records, *dump.compare_only) for dump in (a, b))
        self._places = {id(record): place for records in in_order for place, record in enumerate(records)}
        self._pairs = [each for each in matches if each.a and each.b]
        alone = [each for each in matches if not (each.a and each.b) and each.repeats is None]
        self._alone: Mapping[SideName, Mapping[str, Record]] = {
            side: {f"{record.name}.forward": record for each in alone for record in each.of(side)} for side in SIDES
        }

    def judged(self, found: Found, both: Together) -> Found:
        """A warning where inputs that such a call made are the first that differ, or differ far more than all before
        them."""
        named = next(self._between(found, both), "") if found.paired.status == "inherited" else ""
        before = self._before.get((id(both.match), both.direction), 0.0) if named else 0.0
        if not named or (before and self._gap(both) <= _MORE * before):
            return found
        reason = "; ".join(filter(None, (f"behind {named}", found.verdict.reason)))
        return replace(found, verdict=replace(found.verdict, verdict="warning", reason=reason))

    def _between(self, found: Found, both: Together) -> Iterator[str]:
        """The calls that made what differs; of gradients, which come of later calls, the next one that has some."""
        for side, alone in self._alone.items():
            for record in both.records(side) if alone else ():
                if both.direction == "forward":
                    made = self._comparing.producers(both.dump(side)).makers(record)
                    calls = [made[name] for name in found.differing if made.get(name) in alone]
                elif any(name.startswith("incoming") for name in found.differing):
                    behind = [each for each in alone.values() if self._places[id(each)] > self._places[id(record)]]
                    calls = [f"{each.name}.backward" for each in behind if "backward" in directions_of(each)]
                else:
                    calls = []
                yield from (f"a call that {side} alone has: {call}" for call in calls)

    @cached_property
    def _before(self) -> Mapping[tuple[int, Direction], float]:
        """How far the statistics of pairs before each lie apart, at most: forward in A's order, backward in reverse."""
        pairs = sorted(self._pairs, key=lambda each: self._places[id(each.a[0])])
        found, largest = dict[tuple[int, Direction], float](), 0.0
        orders: Mapping[Direction, Sequence[Match]] = {"forward": pairs, "backward": pairs[::-1]}
        for direction, order in orders.items():
            for each in order:
                both = Together(self._a, self._b, each, direction)
                found[id(each), direction] = largest
                if both.records("A") and not both.is_random:
                    largest = max(largest, self._gap(both))
        return found

    def _gap(self, both: Together) -> float:
        try:
            one, other = (self._comparing.tensors(both, side) for side in SIDES)
        except RecordError:
            return 0.0
        gaps = (statistics_gap(one[name].spec, other[name].spec) for name in one.keys() & other.keys())
        return max(filter(None, gaps), default=0.0)
