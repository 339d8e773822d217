"""Another run beside that of the page."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec import structs

from pytest_probe.features.html.other_runs import (
    COMPARED_METRICS,
    RUNS,
    Comparison,
    OtherCase,
    letter_of,
    sparklines,
)
from pytest_probe.model.baseline import KeptCase, KeptOutput
from pytest_probe.model.result import Result
from pytest_probe.reports.history_file import HistoryRun
from pytest_probe.reports.result_set import ResultSet
from tests.support.made_results import RUN, made_result


def changed(result: Result, factor: float) -> Result:
    metrics = dict(result.outputs[0].metrics)
    metrics["noise_ratio"] = float(metrics["noise_ratio"] or 0) * factor
    return structs.replace(result, outputs=(structs.replace(result.outputs[0], metrics=metrics),))


def beside(here: list[Result], there: list[Result]) -> dict[str, object]:
    other = ResultSet("run", "other", {each.id: OtherCase.of(each) for each in there})
    found = Comparison(other)
    for row, result in enumerate(here):
        found.add(row, result)
    return found.data()


def test_the_cases_that_moved_most_come_first() -> None:
    cases = [made_result(number) for number in range(4)]
    found = beside([cases[0], changed(cases[1], 2), changed(cases[2], 0.125), cases[3]], cases)
    assert (found["common"], found["moved"]) == (4, 2)
    moves = found["moves"]
    assert isinstance(moves, list)
    assert [move[0] for move in moves] == [2, 1]
    place = 2 + COMPARED_METRICS.index("noise_ratio")
    assert moves[1][place + len(COMPARED_METRICS)] / moves[1][place] == pytest.approx(2, rel=1e-3)


def test_a_changed_verdict_comes_before_all_else() -> None:
    cases = [made_result(number) for number in range(2)]
    here = [changed(cases[0], 1e6), structs.replace(cases[1], verdict="error")]
    moves = beside(here, cases)["moves"]
    assert isinstance(moves, list)
    assert [(move[0], move[1]) for move in moves] == [(1, "pass"), (0, "pass")]


def test_cases_on_one_side_are_listed() -> None:
    one, two, three = (made_result(number) for number in range(3))
    found = beside([one, two], [two, three])
    assert (found["only_here"], found["here"]) == (1, [0])
    assert found["only_there"] == 1
    assert found["there"] == [[three.id, "pass", *_short(three)]]


def _short(result: Result) -> list[float]:
    numbers = OtherCase.of(result).numbers
    return [float(f"{numbers[name]:.4g}") for name in ("noise_ratio", "max_ulp")]


def test_a_benchmark_of_another_dtype_is_compared_and_a_run_is_not() -> None:
    case = made_result(0)
    there = structs.replace(case, id=f"{case.id}[bfloat16]")
    for kind, common in (("benchmark", 1), ("run", 0)):
        found = Comparison(ResultSet(kind, "other", {there.id: OtherCase.of(there)}))  # type: ignore[arg-type]
        found.add(0, case)
        assert found.data()["common"] == common


def test_a_case_of_a_baseline_keeps_its_worst_metrics() -> None:
    outputs = (
        KeptOutput("output.0", 1e-8, 2.0, 0.25, 3.0, 4, None, 10, 10),
        KeptOutput("output.1", 1e-8, 1.0, 0.5, "inf", 4, None, 10, 10),
        KeptOutput("output.2", None, None, None, None, None, None, 10, None),
    )
    found = OtherCase.of(KeptCase("x", "", "warning", outputs))
    assert found == OtherCase("warning", {"max_ulp": 2.0, "mean_ulp": 0.5, "noise_ratio": float("inf")})


@pytest.mark.parametrize(
    ("value", "letter"),
    [
        (None, " "), (0.0, "0"), (2.0**-10, "1"), (2.0**-9.5, "2"), (1.0, "L"), (2.0, "N"), (1e300, "-"),
        (math.inf, "_"), (math.nan, "_"),
    ],
)  # fmt: skip
def test_a_value_has_its_letter_in_the_sparkline(value: float | None, letter: str) -> None:
    assert letter_of(value) == letter


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
    assert len(found["runs"]) == RUNS
    assert [len(line) for line in found["lines"]] == [RUNS, 0]
    both = sparklines(path, [made_result(1).id])
    assert both is not None
    assert len(both["runs"]) == 13


def test_no_history_gives_no_sparklines(tmp_path: Path) -> None:
    assert sparklines(None, ["x"]) is None
    assert sparklines(tmp_path / "none.db", ["x"]) is None
