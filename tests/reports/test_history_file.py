"""The SQLite file of a history: appended by several, killed in the middle, and refused where it is something else."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pytest_probe.errors import SettingsError
from pytest_probe.model.measurement import CaseTime
from pytest_probe.model.result import Result
from pytest_probe.reports.history_file import (
    SCHEMA,
    TABLES,
    HistoryRun,
    NotAppended,
    Worse,
    check,
    open_history,
    points,
    previous,
    runs,
    worse,
)
from tests.support.made_results import RUN, made_result, made_results

WRITER = """
import sys
from pathlib import Path
from pytest_probe.reports.history_file import HistoryRun
from tests.support.made_results import RUN, made_results

path, name, runs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
results = [*made_results(300, details=False)]
print("ready", flush=True)
for number in range(runs):
    run = HistoryRun()
    for result in results:
        run.add(result)
    run.append(path, {**RUN, "folder": f"{name}-{number}"})
"""
ROOT = Path(__file__).parents[2]


def append(path: Path, *results: Result, **run: Any) -> None:
    found = HistoryRun()
    for result in results:
        found.add(result)
    found.append(path, {**RUN, **run}, resumes=run.pop("resumes", False))


def rows(path: Path, query: str) -> list[Any]:
    with open_history(path) as file:
        return file.execute(query).fetchall()


def test_python_3_13_takes_one_argument_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **options))
    append(tmp_path / "history.db", made_result(0))
    assert rows(tmp_path / "history.db", "SELECT count(*) FROM results") == [(1,)]


def writer(path: Path, name: str, runs: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(runs)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
    return process


def is_whole(path: Path) -> None:
    """Every run has all its cases, and SQLite finds nothing wrong."""
    with open_history(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        query = "SELECT DISTINCT (SELECT count(*) FROM results WHERE run_id = runs.id) FROM runs"
        assert file.execute(query).fetchall() == [(300,)]


def test_a_run_is_kept_with_its_cases(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    results = [made_result(0), made_result(1, "error"), structs.replace(made_result(2), verdict="skip", outputs=())]
    append(path, *results, folder="out")
    run = rows(
        path, "SELECT started, folder, device, framework, seed, cases, errors, passes, skips, settings FROM runs"
    )
    assert run[0][:-1] == (RUN["started"], "out", "cpu", "torch 2.13.0", 0, 3, 1, 1, 1)
    assert json.loads(run[0][-1])["inputs"] == "auto"
    assert rows(path, "SELECT name, api, direction FROM history ORDER BY case_id") == [
        (each.id, each.api, each.direction) for each in results
    ]
    ratio, limit = (results[0].outputs[0].metrics[name] for name in ("noise_ratio", "noise_ratio_limit"))
    found = rows(path, "SELECT verdict, noise_ratio, limit_share, time_us FROM history WHERE name LIKE '%linear.0.f%'")
    assert found == [("pass", ratio, float(ratio or 0) / float(limit or 1), None)]
    assert rows(path, "SELECT noise_ratio FROM history WHERE verdict = 'skip'") == [(None,)]


def test_a_metric_that_is_nan_is_not_missing(tmp_path: Path) -> None:
    output = made_result(0).outputs[0]
    metrics = {**output.metrics, "noise_ratio": "nan"}
    append(tmp_path / "h.db", structs.replace(made_result(0), outputs=(structs.replace(output, metrics=metrics),)))
    assert rows(tmp_path / "h.db", "SELECT noise_ratio FROM results") == [(float("inf"),)]


def test_runs_share_cases(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    for number in range(3):
        append(path, *made_results(10), started=f"2026-11-2{number}")
    assert rows(path, "SELECT count(*) FROM cases") == [(10,)]
    assert rows(path, "SELECT run_id, count(*) FROM results GROUP BY run_id") == [(1, 10), (2, 10), (3, 10)]


def test_a_run_that_goes_on_takes_the_place_of_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    append(path, *made_results(4), folder="out")
    append(path, *made_results(4), folder="another")
    append(path, *made_results(10), folder="out", resumes=True)
    assert rows(path, "SELECT folder, cases FROM runs ORDER BY id") == [("another", 4), ("out", 10)]
    assert rows(path, "SELECT count(*) FROM results") == [(14,)]
    append(path, *made_results(2), folder="out")
    assert rows(path, "SELECT count(*) FROM runs") == [(3,)]


def test_two_writers_at_once_lose_no_run(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    writers = [writer(path, name, 8) for name in "ab"]
    assert [process.wait(120) for process in writers] == [0, 0]
    assert rows(path, "SELECT count(*) FROM runs") == [(16,)]
    is_whole(path)


@pytest.mark.parametrize("moment", [0, 2, 4])
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, moment: int) -> None:
    path = tmp_path / "h.db"
    append(path, *made_results(300))
    process = writer(path, "killed", 1000)
    time.sleep(0.02 + 0.031 * moment)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    is_whole(path)
    append(path, *made_results(300), folder="after")
    is_whole(path)


def test_what_fails_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.db"
    append(path, *made_results(5))
    monkeypatch.setattr("pytest_probe.reports.history_file._ids", lambda file, case: file.execute("SELECT none_such"))
    with pytest.raises(NotAppended, match="no such column"):
        append(path, *made_results(5), folder="broken")
    assert rows(path, "SELECT count(*) FROM runs") == [(1,)]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"PRAGMA user_version = {SCHEMA + 1}", "it is of schema 2, this version knows 1: upgrade"),
        ("PRAGMA application_id = 0", "it is no history: give a file that --probe-history wrote"),
    ],
)
def test_what_is_no_history_of_this_version_is_refused(tmp_path: Path, statement: str, words: str) -> None:
    path = tmp_path / "h.db"
    append(path, made_result(0))
    with sqlite3.connect(path) as file:
        file.execute(statement)
    with pytest.raises(SettingsError, match=f"--probe-history: .*{words}"):
        check(path)
    with pytest.raises(NotAppended, match=words.partition(":")[0]):
        append(path, made_result(0))


def test_no_file_and_an_empty_one_can_be_appended_to(tmp_path: Path) -> None:
    check(tmp_path / "none.db")
    empty = tmp_path / "empty.db"
    empty.touch()
    check(empty)
    append(empty, made_result(0))
    assert rows(empty, "SELECT count(*) FROM runs") == [(1,)]


def test_docs_describe_every_column() -> None:
    text = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    with sqlite3.connect(":memory:") as file:
        file.executescript(TABLES)
        names = {
            row[1]
            for table in ("runs", "apis", "cases", "results")
            for row in file.execute(f"PRAGMA table_info({table})")
        }
    assert not {name for name in names if f"`{name}`" not in text}


def test_the_queries_of_the_documentation_run(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    timed = structs.replace(made_result(0), time=CaseTime(median_us=4.0))
    error = structs.replace(made_result(1, "error"), time=CaseTime(median_us=4.0))
    for started in ("2026-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"):
        append(path, timed, error, started=started)
    text = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    found = [rows(path, query) for query in queries]
    assert [len(each) for each in found] == [2, 2, 0, 1, 1]
    assert found[4] == [("Functional.linear", 1.0)]
    dashboard = json.loads((ROOT / "docs" / "history" / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["queryText"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert asked == [target["rawQueryText"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked.append(dashboard["templating"]["list"][0]["query"])
    assert [len(rows(path, query.replace("$api", "Functional.linear"))) for query in asked] == [2, 2, 2, 1, 1]


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


def test_a_metric_has_a_point_for_each_run_that_has_it(path: Path) -> None:
    with open_history(path) as file:
        found = points(file, "Functional.linear", "noise_ratio")
        assert [(point.run.id, point.cases) for point in found] == [(1, 2), (2, 2), (3, 2)]
        assert (found[2].value, found[2].name) == (1e4, made_result(0).id)
        assert [point.cases for point in points(file, "Functional.l*", "noise_ratio", "2026-11-2")] == [4, 4]
        assert points(file, "Functional.unknown", "noise_ratio") == []


def test_cases_that_got_worse_between_runs_are_listed(path: Path) -> None:
    cases = [*made_results(2)]
    before = [float(case.outputs[0].metrics["noise_ratio"] or 0) for case in cases]
    with open_history(path) as file:
        assert worse(file, 1, 2, "noise_ratio") == []
        assert worse(file, 2, 3, "noise_ratio") == [
            Worse(cases[1].id, ("pass", "error"), before[1], before[1]),
            Worse(cases[0].id, ("pass", "pass"), before[0], 1e4),
        ]
        assert worse(file, 3, 2, "noise_ratio") == []


def test_the_run_before_is_of_the_same_dumps(path: Path) -> None:
    with open_history(path) as file:
        known = runs(file)
    assert previous(known, known[2]) == known[1]
    assert previous(known, known[0]) is None
    assert previous(known, known[3]) is None


@pytest.mark.parametrize(("before", "factor"), [(2.0, 3), (0.0, math.inf), (None, 1), (math.inf, 1)])
def test_the_factor_of_a_worse_case(before: float | None, factor: float) -> None:
    after = before if before == math.inf else 6.0
    assert Worse("x", ("pass", "pass"), before, after).factor == factor
