"""The time that a device takes, as the framework that drives it can tell it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

ClockName: TypeAlias = Literal["host", "events"]
# Seconds that the marks around a block of calls vanish in.
BLOCK = 1e-4


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
    block = BLOCK

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
