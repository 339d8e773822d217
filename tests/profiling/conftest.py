"""A clock that goes when a test says so."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_probe.profiling import stopwatch, track


@dataclass
class Clock:
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
