from __future__ import annotations

import pytest

from pytest_probe.check import judging
from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.verdict import Diagnosis, OutputVerdict
from pytest_probe.standards.diagnosis import Depth, diagnose


@pytest.fixture
def no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict hangs on the cause of an error, which takes most of the time."""
    monkeypatch.setattr(judging, "diagnose", lambda *_: None)


@pytest.fixture
def causes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test looks for a cause at the first error of each output: no verdict hangs on it, and it takes longer."""
    seen: set[tuple[str, str]] = set()

    def once(standard: Standard, comparison: Comparison, verdict: OutputVerdict, depth: Depth) -> Diagnosis | None:
        place = (comparison.direction, comparison.name)
        if place in seen:
            return None
        seen.add(place)
        return diagnose(standard, comparison, verdict, depth)

    monkeypatch.setattr(judging, "diagnose", once)
