"""Which part --probe-shard asks for, and which cases belong to it: they are dealt out by estimated cost, alike on each
machine."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence

from pytest_probe.option_types import Given, Type

# More shards than any run has cases.
MOST_PARTS = 1_000_000


def shard_of(text: str) -> tuple[int, int] | None:
    """The I and N of "I/N", the I-th of N parts; None where it is none, or N is more than any run has cases."""
    match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
    number, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    return (number, parts) if 1 <= number <= parts <= MOST_PARTS else None


class Part(Type):
    """The I and N of the I-th of N parts; None for the whole."""

    def read(self, given: Given) -> tuple[int, int] | None:
        found = shard_of(given.text)
        if given.text and found is None:
            raise given.wrong("give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
        return found

    def plain(self, value: tuple[int, int] | None) -> str | None:
        return None if value is None else "/".join(map(str, value))


def dealt(costs: Sequence[float], parts: int) -> list[int]:
    """Which of so many parts (from 0) each thing goes to, so that parts cost about the same: the costliest that is left
    goes to the cheapest part, and of equal ones the first. This is known as longest processing time first."""
    found = [0] * len(costs)
    heap = [(0.0, part) for part in range(parts)]
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        total, part = heap[0]
        heapq.heapreplace(heap, (total + costs[place], part))
        found[place] = part
    return found
