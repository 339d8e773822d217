"""A clock that goes when a test says so."""

from __future__ import annotations

import pytest
from msgspec import Struct

from pytest_probe.capture.profiling import stopwatch, track


class Clock(Struct):
    """Its time is in ns."""

    time: int = 1_000

    def __call__(self) -> int:
        return self.time

    def pass_(self, nanoseconds: int) -> None:
        self.time += nanoseconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(track, "now", made)
    monkeypatch.setattr(stopwatch, "now", made)
    return made
