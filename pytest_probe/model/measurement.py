"""What a case takes of time and memory, the clocks that tell it, where the time of its check goes, and what a compiler
made of its call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec

ClockName: TypeAlias = Literal["host", "events"]
# What the time of a case goes to.
Part: TypeAlias = Literal["inputs", "device", "reference", "runs", "judge"]
PARTS: tuple[Part, ...] = get_args(Part)
# Seconds that the marks around a block of calls vanish in.
_BLOCK = 1e-4


def now() -> float:
    """Seconds of the host."""
    return time.perf_counter()


def sleep(seconds: float) -> None:
    """Let so many seconds of the host pass."""
    time.sleep(seconds)


class Clock(Protocol):
    """A device's time. Marks are moments on the stream that calls are made on; they may be read long after.

    block is how many seconds lie between two marks at least, so that what a mark itself takes does not count.
    """

    name: ClockName
    block: float

    def mark(self) -> Any:
        """This moment, behind everything that the device was asked for."""

    def seconds(self, start: Any, end: Any) -> float:
        """The time between two marks; it waits for the device where that has not come past them."""


class HostClock:
    """The host's time around what the device does; wait returns when the device has done all that it was asked for,
    None where a call returns no earlier."""

    name: ClockName = "host"
    block = _BLOCK

    def __init__(self, wait: Callable[[], object] | None = None) -> None:
        self._wait = wait

    def mark(self) -> float:
        if self._wait is not None:
            self._wait()
        return now()

    def seconds(self, start: float, end: float) -> float:
        return end - start


class EventClock:
    """Events on the current stream of an accelerator, which tell times to about half a microsecond (CUDA's). made gives
    an event of the framework's that takes the time."""

    name: ClockName = "events"
    block = 1e-3

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made

    def mark(self) -> Any:
        event = self._made()
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        # Frameworks tell milliseconds.
        return float(start.elapsed_time(end)) * 1e-3


Shape: TypeAlias = tuple[int, ...]
# too short: less than twice what an empty call takes, so that nothing is compared. once: one call takes more than the
# budget, and was timed once, behind the first one.
TimeNote: TypeAlias = Literal["", "too short", "once"]
# Whether the inputs of a call lie in the device's last cache when it begins.
Warmth: TypeAlias = Literal["warm", "cold"]


class Throughput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call moves and computes in a second, and what the device reaches in a copy and in a matrix product of
    the same dtype. GB are 10^9 bytes, GFLOP 10^9 operations; None where the API does not tell."""

    gb_per_s: float | None = None
    copy_gb_per_s: float | None = None
    gflop_per_s: float | None = None
    product_gflop_per_s: float | None = None


class TimeBeside(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time of the same case in a benchmark or a baseline, in microseconds; ratio is this run's over that one. Above
    limit the case is slower; None where no limit was asked for. least_us is None where only the median is kept."""

    where: Literal["benchmark", "baseline"]
    median_us: float
    ratio: float
    limit: float | None = None
    least_us: float | None = None


class CaseTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time of one call, in microseconds: of blocks of calls the median, the quartiles and the least, what an empty
    call takes (empty_us) subtracted; and that of the first call.

    calls counts all that were measured, sets how many copies of the inputs took turns. reason: why there is no time.
    """

    median_us: float | None = None
    lower_us: float | None = None
    upper_us: float | None = None
    least_us: float | None = None
    first_us: float | None = None
    empty_us: float | None = None
    calls: int = 0
    clock: str = ""
    inputs: str = ""
    sets: int = 0
    note: TimeNote = ""
    reason: str = ""
    input_shapes: tuple[Shape, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    throughput: Throughput | None = None
    beside: TimeBeside | None = None

    @property
    def compares(self) -> bool:
        """Can it be compared with that of another run?"""
        return self.median_us is not None and self.median_us > 0 and self.note != "too short"

    @property
    def is_slower(self) -> bool:
        """Is it above the limit against the other run, by the median and, where both are known, by the least? What else
        a machine does moves the one and not the other."""
        beside = self.beside
        if beside is None or beside.limit is None or not beside.ratio > beside.limit:
            return False
        if self.least_us is None or not beside.least_us:
            return True
        return self.least_us / beside.least_us > beside.limit


class CaseMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of one call, in bytes, apart from its inputs: peak is the most that it held at a time, growth what it
    left, its results. benchmark_bytes is the peak of the same case in a benchmark. source is what counted; reason: why
    nothing did."""

    peak_bytes: int | None = None
    growth_bytes: int | None = None
    input_bytes: int = 0
    benchmark_bytes: int | None = None
    source: str = ""
    reason: str = ""


def in_unit(number: float) -> tuple[float, str]:
    """Microseconds in the unit in which three digits tell them: (2.04, "ms")."""
    for unit, size in (("us", 1.0), ("ms", 1e3)):
        # What rounds to 1000 is written in the next unit.
        if number < 999.5 * size:
            return number / size, unit
    return number / 1e6, "s"


def microseconds(number: float) -> str:
    """ "13.4 us", "2.04 ms", "1.3 s"."""
    value, unit = in_unit(number)
    return f"{value:.3g} {unit}"


class _Spent:
    """Seconds by part: what a part takes inside another one counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside = 0.0


_SPENT: ContextVar[_Spent | None] = ContextVar("pytest_probe_parts", default=None)


@contextmanager
def parts_of_case() -> Iterator[Callable[[], dict[str, float]]]:
    """A case is checked in here. Gives what its parts took so far, in the order in which they began."""
    spent = _Spent()
    token = _SPENT.set(spent)
    try:
        yield lambda: {name: round(seconds, 6) for name, seconds in spent.seconds.items()}
    finally:
        _SPENT.reset(token)


@contextmanager
def spending(part: Part) -> Iterator[None]:
    """What runs in here is this part of the case, if one is checked on this thread."""
    spent = _SPENT.get()
    if spent is None:
        yield
        return
    outer, spent.inside = spent.inside, 0.0
    spent.seconds.setdefault(part, 0.0)
    began = time.perf_counter()
    try:
        yield
    finally:
        whole = time.perf_counter() - began
        spent.seconds[part] += whole - spent.inside
        spent.inside = outer + whole
