"""Parts of a case's time, and the table of the slowest cases that --durations shows."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.check.parts import parts_of_case, spending
from pytest_probe.reports.tally import Slowest


def test_a_part_inside_another_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 10.0, 10.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    with parts_of_case() as parts:
        with spending("judge"), spending("runs"):
            pass
        with spending("runs"):
            pass
    assert parts() == {"judge": 2.0, "runs": 2.5}


def test_outside_of_a_case_nothing_is_counted() -> None:
    with spending("runs"):
        pass
    with parts_of_case() as parts:
        pass
    assert parts() == {}


def _written(count: int | None, least: float = 0.0) -> list[str]:
    lines: list[str] = []
    found: Any = Slowest(count, least)
    for number, seconds in enumerate((0.5, 2.0, 1.0, 0.001)):
        parts = {"judge": seconds / 2, "reference": seconds / 4}
        found.add(SimpleNamespace(id=f"dump.json::Torch.exp.{number}.forward", duration=seconds, parts=parts))
    found.add(SimpleNamespace(id="dump.json::Torch.exp.4.forward", duration=9.0, parts={}))
    found.write(SimpleNamespace(write_sep=lambda _, title: lines.append(title), write_line=lines.append))
    return lines


def test_the_slowest_come_first_and_those_without_parts_are_left_out() -> None:
    assert _written(2) == [
        "slowest cases of the probe, in seconds",
        "      total     inputs     device  reference       runs      judge  case",
        "      2.000      0.000      0.000      0.500      0.000      1.000  dump.json::Torch.exp.1.forward",
        "      1.000      0.000      0.000      0.250      0.000      0.500  dump.json::Torch.exp.2.forward",
    ]


@pytest.mark.parametrize(("count", "least", "shown"), [(None, 0.0, 0), (0, 0.0, 6), (0, 0.1, 5), (9, 5.0, 0)])
def test_as_many_are_shown_as_pytest_shows(count: int | None, least: float, shown: int) -> None:
    assert len(_written(count, least)) == shown
