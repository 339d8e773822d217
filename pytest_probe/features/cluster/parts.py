"""How groups of cases are dealt out to processes that take more as soon as they are done.

Guided self-scheduling (Polychronopoulos and Kuck, 1987), heaviest first: each time a process is free it gets a share of
what is left, so that the last groups go out one at a time.

Two parts a host hide the time of sending. Passing setups and teardowns are not sent: that is why an item costs the
controller less than under `-n`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

# Parts per process into which the remaining cost is divided. With 1, an estimate that is half of the truth would make
# all other processes wait for one.
_PARTS_PER_PROCESS = 4
# The most that goes out at once, in estimated milliseconds: what a lost process has to give back, and how often a run
# shows that it goes on.
MAX_PART_COST = 500.0
# Groups that do not fit into a node's memory, passed over in the search for one that does.
_MAX_PASSED_OVER = 1000


class Dealing:
    """Groups that wait, by their places in costs. costs are estimated milliseconds, sizes the bytes that a group takes
    while it runs."""

    def __init__(self, costs: Sequence[float], sizes: Sequence[int]) -> None:
        self._costs = costs
        self._sizes = sizes
        self._waiting = deque(sorted(range(len(costs)), key=lambda place: -costs[place]))
        self._alone: deque[int] = deque()
        self._left = math.fsum(costs)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._alone)

    def take(self, processes: int, room: float = math.inf) -> list[int]:
        """What one of so many processes gets, in the order in which it runs; room is the bytes that its node has left.
        Empty where nothing waits that fits."""
        if self._alone:
            found = self._fitting(self._alone, room, 0.0)
            if found:
                return found
        return self._fitting(self._waiting, room, min(MAX_PART_COST, self._left / (_PARTS_PER_PROCESS * processes)))

    def give_back(self, groups: Iterable[int], *, alone: bool) -> None:
        """These have not run. alone: each goes out by itself, so that a process that is lost again shows which one."""
        for place in groups:
            self._left += self._costs[place]
            (self._alone if alone else self._waiting).appendleft(place)

    def drop(self, larger_than: float) -> list[int]:
        """Take out, and give, what takes more bytes than this."""
        dropped = [place for place in self._waiting if self._sizes[place] > larger_than]
        if dropped:
            self._waiting = deque(place for place in self._waiting if self._sizes[place] <= larger_than)
            self._left -= math.fsum(self._costs[place] for place in dropped)
        return dropped

    def left(self) -> list[int]:
        """All that wait."""
        return sorted([*self._waiting, *self._alone])

    def _fitting(self, waiting: deque[int], room: float, wanted: float) -> list[int]:
        """The first groups that fit into room, until their cost reaches wanted."""
        found: list[int] = []
        passed: list[int] = []
        cost = 0.0
        while waiting and len(passed) < _MAX_PASSED_OVER:
            place = waiting.popleft()
            if self._sizes[place] > room:
                passed.append(place)
                continue
            if found and cost + self._costs[place] > wanted:
                waiting.appendleft(place)
                break
            found.append(place)
            cost += self._costs[place]
        waiting.extendleft(reversed(passed))
        self._left -= cost
        return found
