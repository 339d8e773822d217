"""What the rows of many runs tell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec import structs

from pytest_probe.features.history.file import opened
from pytest_probe.features.history.queries import Worse, points, previous, runs, worse
from pytest_probe.model.result import Result
from tests.features.history.test_file import append
from tests.support.made_results import made_result, made_results


def with_ratio(result: Result, ratio: float) -> Result:
    output = result.outputs[0]
    return structs.replace(result, outputs=(structs.replace(output, metrics={**output.metrics, "noise_ratio": ratio}),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three runs of ten cases, the last with one that got worse and one error; then one of another dump."""
    path = tmp_path / "h.db"
    cases = [*made_results(10)]
    append(path, *cases, started="2026-11-01T10:00:00")
    append(path, *cases, started="2026-11-20T10:00:00")
    third = [with_ratio(cases[0], 1e4), structs.replace(cases[1], verdict="error"), *cases[2:]]
    append(path, *third, started="2026-11-21T10:00:00")
    append(path, cases[5], started="2026-11-22T10:00:00", dumps=[{"label": "other.json", "digest": "sha256:1"}])
    return path


def test_runs_since(path: Path) -> None:
    with opened(path) as file:
        assert [run.id for run in runs(file)] == [1, 2, 3, 4]
        assert [run.id for run in runs(file, "2026-11-2")] == [2, 3, 4]
        assert runs(file, "2026-11-21")[0].errors == 1


def test_a_metric_over_runs(path: Path) -> None:
    with opened(path) as file:
        found = points(file, "Functional.linear", "noise_ratio")
        assert [(point.run.id, point.cases) for point in found] == [(1, 2), (2, 2), (3, 2)]
        assert found[2].value == 1e4
        assert found[2].name == made_result(0).id
        assert [point.run.id for point in points(file, "Functional.linear", "max_ulp", "2026-11-2")] == [2, 3]
        assert points(file, "Functional.l*", "noise_ratio")[0].cases == 4
        assert points(file, "Functional.linear.0.forward", "noise_ratio")[0].cases == 1
        assert points(file, "Functional.unknown", "noise_ratio") == []


def test_what_got_worse(path: Path) -> None:
    cases = [*made_results(2)]
    before = [float(case.outputs[0].metrics["noise_ratio"] or 0) for case in cases]
    with opened(path) as file:
        assert worse(file, 1, 2, "noise_ratio") == []
        assert worse(file, 2, 3, "noise_ratio") == [
            Worse(cases[1].id, ("pass", "error"), before[1], before[1]),
            Worse(cases[0].id, ("pass", "pass"), before[0], 1e4),
        ]
        assert worse(file, 3, 2, "noise_ratio") == []


def test_the_run_before_is_of_the_same_dumps(path: Path) -> None:
    with opened(path) as file:
        known = runs(file)
    assert previous(known, known[2]) == known[1]
    assert previous(known, known[0]) is None
    assert previous(known, known[3]) is None


def test_factors() -> None:
    assert Worse("x", ("pass", "pass"), 2.0, 6.0).factor == 3
    assert Worse("x", ("pass", "pass"), 0.0, 6.0).factor == math.inf
    assert Worse("x", ("pass", "pass"), None, 6.0).factor == 1
    assert Worse("x", ("pass", "pass"), math.inf, math.inf).factor == 1
