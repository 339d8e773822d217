"""How a call of the user's may end but by returning."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest


class Own(BaseException):
    """No Exception."""


class Silent(Exception):
    """Has no text to show."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def _raises(make: Callable[[], BaseException]) -> Callable[..., Any]:
    def end(*args: Any) -> Any:
        raise make()

    return end


def _deep(*args: Any) -> Any:
    return _deep(*args)


def _out_of_time(*args: Any) -> Any:
    """As pytest-timeout ends a test."""

    def fail(number: int, frame: object) -> None:
        pytest.fail("Timeout >1s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        while True:
            pass
    finally:
        signal.signal(signal.SIGALRM, before)


def interrupted(*args: Any) -> Any:
    """As by Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        pass


# What it raises, and what is said of it.
ENDINGS: Mapping[str, Callable[..., Any]] = {
    "SystemExit: 3": lambda *args: sys.exit(3),
    "Own: why": _raises(lambda: Own("why")),
    "KeyboardInterrupt": _raises(KeyboardInterrupt),
    "GeneratorExit": _raises(GeneratorExit),
    "CancelledError": _raises(asyncio.CancelledError),
    "RecursionError: maximum recursion depth exceeded": _deep,
    "Failed: Timeout >1s": _out_of_time,
    "Skipped: why": lambda *args: pytest.skip("why"),
    "XFailed: why": lambda *args: pytest.xfail("why"),
    "Exit: why": lambda *args: pytest.exit("why"),
    "Failed: why": lambda *args: pytest.fail("why"),
    "Silent: (its own text raised ValueError)": _raises(Silent),
    "StopIteration": _raises(StopIteration),
    "MemoryError": _raises(MemoryError),
    "ValueError: line": _raises(lambda: ValueError("line\n" * 5000)),
    "ValueError: xxx": _raises(lambda: ValueError("x" * 500_000)),
}
