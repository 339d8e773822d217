"""A metric over runs, a letter a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_probe.features.history.file import HistoryRun
from pytest_probe.features.html.sparklines import RUNS, Sparklines, sparklines
from tests.support.made_results import RUN, made_result


@pytest.mark.parametrize(
    ("value", "letter"),
    [
        (None, " "), (0.0, "0"), (2.0**-10, "1"), (2.0**-9.5, "2"), (1.0, "L"), (2.0, "N"), (1e300, "-"),
        (math.inf, "_"), (math.nan, "_"),
    ],
)  # fmt: skip
def test_letters(value: float | None, letter: str) -> None:
    assert Sparklines("noise_ratio", ["a"], {"x": [value]}).data(["x", "y"])["lines"] == [letter, ""]


def test_the_last_runs_of_a_history(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    for number in range(RUNS + 3):
        run = HistoryRun()
        run.add(made_result(0))
        if number % 2:
            run.add(made_result(1))
        run.append(path, {**RUN, "started": f"2026-11-23T07:00:{number:02}"})
    found = sparklines(path, [made_result(0).id, "unknown"])
    assert found is not None
    assert len(found.runs) == RUNS
    data = found.data([made_result(0).id, "unknown"])
    assert [len(line) for line in data["lines"]] == [RUNS, 0]
    both = sparklines(path, [made_result(1).id])
    assert both is not None
    assert len(both.runs) == 13


def test_without_a_history(tmp_path: Path) -> None:
    assert sparklines(None, ["x"]) is None
    assert sparklines(tmp_path / "none.db", ["x"]) is None
