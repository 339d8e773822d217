"""One timed stretch of a program: its threads, its sections, and the times of each API in them.

Counts and sums of an API are exact; percentiles come from a sample.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from pytest_probe.capture.profiling.track import FIELDS, Api, DeviceClock, Logs, Traced, Track, now

# All times of an API's calls are kept up to so many; from there on each has the same chance to be among those kept.
MOST_SAMPLES = 10_000

# Microseconds in a nanosecond.
_MICRO = 1e-3
log = logging.getLogger("pytest_probe")
# A trace of more calls is too large for what shows it.
_MOST_TRACED = 250_000
# Times on the device are read so many at a time, since to read one is to wait for it.
_UNREAD = 10_000


class Spent(Struct, frozen=True):
    """What one API took: counts, times in microseconds, and None for what was not measured.

    total and own hold all calls; own, the self time, leaves out the calls inside that have a row. first is the first
    call, which p50, p90, p99 and least leave out, as they do calls that raised. share is own divided by all that was
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
            # A thread that called earlier may be reported later.
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


class Section:
    """A part of the program, by the names of the sections around it: `step/forward`. Times are in ns."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.times = 0
        self.spent = 0
        self.begun: int | None = None
        self.stretches: list[tuple[int, int]] = []
        self._table: dict[Api, Durations] = {}

    def open(self) -> None:
        self.times += 1
        self.begun = now()

    def close(self) -> None:
        if self.begun is not None:
            self.stretches.append((self.begun, now()))
            self.spent += self.stretches[-1][1] - self.begun
            self.begun = None

    def of(self, api: Api) -> Durations:
        found = self._table.get(api)
        if found is None:
            found = self._table[api] = Durations()
        return found

    def rows(self) -> list[tuple[Api, Spent]]:
        """The APIs, ordered by their own time, the largest first; then each with its shapes, where shapes are
        recorded."""
        measured = sum(one.own for api, one in self._table.items() if api.whole is None)
        ordered = sorted(self._table.items(), key=lambda row: (row[0].whole is not None, -row[1].own))
        return [(api, durations.summary(measured)) for api, durations in ordered]


class _Threads(threading.local):
    track: Track | None = None


class Stopwatch:
    """Counts and times the calls that frameworks hand to the track of their thread.

    nested: calls inside calls get rows of their own; asynchronous: a device is waited for at the end only; backward:
    calls' gradients get rows; by_shape: so do their dtypes and shapes; traced: calls are kept for a trace.
    """

    def __init__(
        self,
        nested: bool = False,
        asynchronous: bool = False,
        backward: bool = False,
        by_shape: bool = False,
        traced: bool = False,
    ) -> None:
        self.nested = nested
        self.asynchronous = asynchronous
        self.backward = backward
        self.by_shape = by_shape
        self.whole = Section("")
        self.sections: dict[str, Section] = {}
        self.notes: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        # How long the devices went on after the program, in ns, where they were not waited for before.
        self.waited: int | None = None
        self._traced = traced
        self._apis: dict[tuple[str, str, str], Api] = {}
        self._calls = 0
        self._kept: dict[Track, list[Traced]] = {}
        self._unread: list[tuple[list[Durations], Callable[[], float]]] = []
        self._open: list[Section] = []
        self._tracks: list[Track] = []
        self.local = _Threads()
        # What a signal's handler calls may be timed while this thread holds it.
        self._lock = threading.RLock()

    def track(self) -> Track:
        """This thread's."""
        track = self.local.track
        if track is None:
            track = self.local.track = Track(self._fold, self.nested)
            self._tracks.append(track)
        return track

    def api(self, framework: str, name: str, direction: str = "forward", clock: DeviceClock | None = None) -> Api:
        """The API of this name."""
        key = (framework, name, direction)
        return self._apis.get(key) or self._apis.setdefault(key, Api(framework, name, direction, clock=clock))

    def start(self) -> None:
        self.whole.open()

    def begin_section(self, name: str) -> None:
        self._fold_all()
        path = "/".join([*(section.path for section in self._open[-1:]), name or f"section {len(self.sections) + 1}"])
        section = self.sections.setdefault(path, Section(path))
        section.open()
        self._open.append(section)

    def end_section(self) -> None:
        """The section that was begun last; a warning where none is open."""
        if not self._open:
            self.tell(
                "sections", "pytest-probe: end_analysis() without a start_analysis() before it: nothing ends here"
            )
            return
        self._fold_all()
        self._open.pop().close()

    def tell(self, key: str, words: str) -> None:
        """Warn of something, once."""
        if key not in self.notes:
            self.notes[key] = words
            log.warning(words)

    def later(self, api: Api, read: Callable[[], float]) -> None:
        """After a call: read gives the time that the device took (ns), as soon as the device has done it."""
        self._unread.append(([*self._rows(api)], read))
        if len(self._unread) >= _UNREAD:
            self._read()

    def wait(self, synchronize: Callable[[], object]) -> None:
        """At the end of asynchronous calls: wait for their device, and count for how long."""
        if self.asynchronous:
            begin = now()
            synchronize()
            self.waited = (self.waited or 0) + now() - begin

    def finish(self) -> None:
        """The program has ended, or its timed part: what is open is closed, and said."""
        if self._open:
            named = ", ".join(section.path for section in self._open)
            self.tell("open", f"pytest-probe: these sections were still open at the end, and end there: {named}")
        while self._open:
            self.end_section()
        self._fold_all()
        self._read()
        self.whole.close()

    def traces(self) -> Mapping[Track, list[Traced]]:
        """The calls of each thread, in no order."""
        return self._kept

    @property
    def threads(self) -> int:
        return len(self._tracks)

    def _read(self) -> None:
        with self._lock:
            for rows, read in self._unread:
                took = read()
                for durations in rows:
                    durations.device = (durations.device or 0.0) + took
            self._unread.clear()

    def _fold_all(self) -> None:
        for track in list(self._tracks):
            self._fold(track)

    def _fold(self, track: Track) -> None:
        with self._lock:
            calls, failed, noted = map(_take_logs, (track.calls, track.failed, track.noted))
            growth, track.growth = track.growth, defaultdict(int)
            stretches, track.stretches = track.stretches, []
            if self.whole.begun is None:
                # A thread that goes on after the end.
                return
            for api, log in (*calls, *noted):
                for durations in self._rows(api):
                    durations.add(log[0::FIELDS], log[1::FIELDS], log[2::FIELDS])
            for api, log in failed:
                for durations in self._rows(api):
                    durations.add_failed(log[1::FIELDS], log[2::FIELDS])
            for api, grown in growth.items():
                for durations in self._rows(api):
                    durations.grow(grown)
            if self._traced:
                self._keep(track, [*_traced(calls), *_traced(failed), *stretches])

    def _rows(self, api: Api) -> Iterator[Durations]:
        for section in (self.whole, *self._open):
            yield section.of(api)
            if api.whole is not None:
                yield section.of(api.whole)

    def _keep(self, track: Track, calls: list[Traced]) -> None:
        left = max(_MOST_TRACED - self._calls, 0)
        self._calls += len(calls)
        self._kept.setdefault(track, []).extend(calls[:left])
        if self._calls > _MOST_TRACED:
            self.tell("trace", f"pytest-probe: the trace holds the first {_MOST_TRACED} calls, the table holds all")


def _take_logs(logs: Logs) -> list[tuple[Api, list[int]]]:
    """What was logged until now. Its thread may go on to log meanwhile."""
    taken = []
    for api, log in list(logs.items()):
        count = len(log)
        if count:
            taken.append((api, log[:count]))
            del log[:count]
    return taken


def _traced(logs: list[tuple[Api, list[int]]]) -> Iterator[Traced]:
    for api, log in logs:
        yield from ((api, begin, spent) for begin, spent in zip(log[0::FIELDS], log[1::FIELDS], strict=True))
