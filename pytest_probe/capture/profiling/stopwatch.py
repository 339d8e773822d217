"""One timed stretch of a program: its threads, its sections, and what it is told."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from pytest_probe.capture.profiling.durations import Durations, Spent
from pytest_probe.capture.profiling.track import FIELDS, Api, DeviceClock, Logs, Traced, Track, now

log = logging.getLogger("pytest_probe")

# A trace of more calls is too large for what shows it.
MOST_TRACED = 250_000
# Times on the device are read so many at a time, since to read one is to wait for it.
_UNREAD = 10_000


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
        """The APIs, those first that took the most time themselves; then each with its shapes, where they are told."""
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
        return self.local.track or self._begin_track()

    def _begin_track(self) -> Track:
        track = self.local.track = Track(self._fold, self.nested)
        self._tracks.append(track)
        return track

    def api(self, framework: str, name: str, direction: str = "forward", clock: DeviceClock | None = None) -> Api:
        """The one of this name."""
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
            calls, failed, noted = map(_taken, (track.calls, track.failed, track.noted))
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
        left = max(MOST_TRACED - self._calls, 0)
        self._calls += len(calls)
        self._kept.setdefault(track, []).extend(calls[:left])
        if self._calls > MOST_TRACED:
            self.tell("trace", f"pytest-probe: the trace holds the first {MOST_TRACED} calls, the table holds all")


def _taken(logs: Logs) -> list[tuple[Api, list[int]]]:
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
