from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.check.determinism import Repeats
from pytest_probe.model.verdict import Outcome, OutputVerdict


def verdict(outcome: Outcome, ratio: float = 0.0, name: str = "output.0") -> OutputVerdict:
    metrics = {"noise_ratio": ratio, "noise_ratio_limit": 64.0}
    return OutputVerdict(name, (2,), "float32", outcome, "noise", "", metrics)


def spread(runs: Iterable[Any]) -> tuple[Any, tuple[str, ...]]:
    """spread_ulp and the notes of runs of one output."""
    repeats = Repeats()
    for run in runs:
        repeats.add({"output.0": run})
    repeats.judged([verdict("pass")])
    return repeats.outputs()[0].metrics["spread_ulp"], repeats.notes()


def test_runs_alike_are_judged_once() -> None:
    repeats = Repeats()
    run = {"output.0": np.ones(2, np.float32)}
    assert [repeats.add(run), repeats.add(run), repeats.add(run)] == [True, False, False]
    repeats.judged([verdict("pass")])
    assert repeats.outputs()[0].metrics["repeats"] == 3
    assert repeats.outputs()[0].metrics["spread_ulp"] == 0.0
    assert repeats.notes() == ()


def test_the_spread_is_that_between_the_extremes() -> None:
    runs = [np.array([1 + step * 2.0**-23, 5.0], np.float32) for step in (1, 0, 3)]
    assert spread(runs) == (
        3.0,
        ("non-deterministic: 2 of 3 runs differ from the first; output.0: 1 of 2 elements, by up to 3 ULP",),
    )


@pytest.mark.parametrize(
    ("first", "second", "ulp"),
    [
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16), 1.0),
        (np.array([1 + 2j], np.complex64), np.array([1 + (2 + 2.0**-21) * 1j], np.complex64), 2.0),
        (np.array([3, 7]), np.array([3, 9]), 2.0),
        (np.array([True]), np.array([False]), 1.0),
        (1.0, 1.0 + 2.0**-50, 4.0),
        (np.array([1.0, np.nan]), np.array([1.0, 1.0]), math.inf),
        (np.array([1.0, np.inf]), np.array([1.0, 1.0]), math.inf),
        (np.array([1.0]), np.array([1.0, 1.0]), math.inf),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0 + 2.0**-52]), 1.0),
        (np.array([0.0]), np.array([-0.0]), 0.0),
    ],
)
def test_spread_of_any_kind(first: Any, second: Any, ulp: float) -> None:
    found, notes = spread([first, second])
    assert found == ulp
    assert len(notes) == 1


def test_the_worst_verdict_on_each_output_stays() -> None:
    repeats = Repeats()
    for number, outputs in enumerate(
        (
            [verdict("pass", 3.0), verdict("pass", 1.0, "output.1")],
            [verdict("error", 70.0), verdict("pass", 2.0, "output.1")],
            [verdict("pass", 9.0), verdict("pass", 0.0, "output.1")],
        )
    ):
        repeats.add({"output.0": np.full(2, number), "output.1": np.full(2, number)})
        assert repeats.judged(outputs) == (number < 2)
    assert [(each.verdict, each.metrics["noise_ratio"]) for each in repeats.outputs()] == [
        ("error", 70.0),
        ("pass", 2.0),
    ]


def test_a_missing_output_in_one_run_is_kept() -> None:
    repeats = Repeats()
    repeats.add({"output.0": np.ones(2)})
    repeats.judged([verdict("pass")])
    repeats.add({})
    repeats.judged([verdict("error")])
    assert [each.verdict for each in repeats.outputs()] == ["error"]
