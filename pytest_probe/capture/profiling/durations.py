"""The times of the calls of one API: exact counts and sums, and a sample for the percentiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

# All times of an API's calls are kept up to so many; from there on each has the same chance to be among those kept.
MOST_SAMPLES = 10_000

_MICRO = 1e-3


class Spent(Struct, frozen=True):
    """What one API took: counts, times in microseconds, and None for what was not measured.

    total and own hold all calls; own, the self time, leaves out the calls inside that have a row. first is the first
    call, which p50, p90, p99 and least leave out, as they do calls that raised. share is that of own in all that was
    measured. memory is the growth of the device's allocated memory in bytes, device the time on the device.
    """

    calls: int
    errors: int
    total: float
    own: float
    first: float | None
    least: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    share: float
    memory: int | None
    device: float | None


class Durations:
    """Adds up the calls of one API. All times are in nanoseconds."""

    __slots__ = ("_chance", "_first", "_kept", "_least", "_seen", "calls", "device", "errors", "memory", "own", "total")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.total = 0
        self.own = 0
        self.memory: int | None = None
        self.device: float | None = None
        self._first: tuple[int, int] | None = None
        self._least: int | None = None
        self._kept: list[int] = []
        self._seen = 0
        # One of its own: the program's generators stay as they are.
        self._chance = np.random.default_rng(0)

    def add(self, begins: Sequence[int], spent: Sequence[int], inner: Sequence[int]) -> None:
        """Calls that returned, in their order: when each began, how long it took, and how long calls inside took."""
        self.calls += len(spent)
        self._sum(spent, inner)
        others = list(spent)
        if self._first is None or begins[0] < self._first[0]:
            # A thread that called earlier may be told of later.
            earlier, self._first = self._first, (begins[0], others.pop(0))
            others += [] if earlier is None else [earlier[1]]
        if others:
            least = min(others)
            self._least = least if self._least is None else min(self._least, least)
            self._keep(others)

    def add_failed(self, spent: Sequence[int], inner: Sequence[int]) -> None:
        """Calls that raised."""
        self.errors += len(spent)
        self._sum(spent, inner)

    def grow(self, size: int) -> None:
        """The device's allocated memory has grown by so many bytes."""
        self.memory = (self.memory or 0) + size

    def summary(self, measured: int) -> Spent:
        """measured is the sum of own over all APIs, in ns."""
        p50, p90, p99 = (
            (float(value) * _MICRO for value in np.quantile(self._kept, (0.5, 0.9, 0.99)))
            if self._kept
            else (None, None, None)
        )
        return Spent(
            calls=self.calls,
            errors=self.errors,
            total=self.total * _MICRO,
            own=self.own * _MICRO,
            first=None if self._first is None else self._first[1] * _MICRO,
            least=None if self._least is None else self._least * _MICRO,
            p50=p50,
            p90=p90,
            p99=p99,
            share=self.own / measured if measured else 0.0,
            memory=self.memory,
            device=None if self.device is None else self.device * _MICRO,
        )

    def _sum(self, spent: Sequence[int], inner: Sequence[int]) -> None:
        total = sum(spent)
        self.total += total
        self.own += total - sum(inner)

    def _keep(self, spent: list[int]) -> None:
        """Reservoir sampling (Vitter 1985, algorithm R)."""
        room = MOST_SAMPLES - len(self._kept)
        self._kept += spent[:room]
        self._seen += min(room, len(spent))
        others = len(spent) - room
        if others > 0:
            ranks = self._seen + 1 + np.arange(others)
            places = (self._chance.random(others) * ranks).astype(np.int64)
            for index in np.flatnonzero(places < MOST_SAMPLES):
                self._kept[places[index]] = spent[room + index]
            self._seen += others
