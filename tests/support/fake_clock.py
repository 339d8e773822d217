"""A clock that moves only where a test moves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import pytest

from pytest_probe.core import clock


class FakeClock:
    """Device and host have the same time."""

    name: Literal["host", "events"] = "events"
    block = 1e-4

    def __init__(self) -> None:
        self.time = 0.0
        self.marks = 0

    def mark(self) -> float:
        self.marks += 1
        return self.time

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def calls(self, *seconds: float) -> Callable[[int], Sequence[Callable[[], object]]]:
        """Calls that take these seconds, one after the other, the last one for ever."""
        left = list(seconds)

        def call() -> None:
            self.time += left.pop(0) if len(left) > 1 else left[0]

        return lambda number: [call] * number


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Takes the place of the host's time."""
    fake = FakeClock()
    monkeypatch.setattr(clock, "now", lambda: fake.time)
    return fake
