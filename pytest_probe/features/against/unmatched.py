"""Differences that come of calls which one side has alone: what these made is another tensor, and nothing judges it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from pytest_probe.errors import RecordError
from pytest_probe.features.against.compare import SIDES, Comparing, Together, directions_of
from pytest_probe.features.against.judging import Found
from pytest_probe.features.against.matching import Match
from pytest_probe.features.against.sides import statistics_gap
from pytest_probe.model.dump import Direction, Dump, Record
from pytest_probe.model.pairing import SideName

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
