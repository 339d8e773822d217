"""--probe-history and `pytest-probe history`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_probe.cli import main
from tests.acceptance.conftest import DumpMaker
from tests.reports.test_history_file import append, with_ratio
from tests.support.html_page import embedded
from tests.support.made_results import made_result
from tests.support.running import refusal

HISTORY = "--probe-history=h.db"


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest("--probe-dump=dump.json", "--probe-device=cpu", HISTORY, *args)


def rows(query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect("h.db") as file:
        return file.execute(query).fetchall()


@pytest.mark.usefixtures("planted")
def test_every_run_is_appended_and_the_page_has_lines_over_them(
    pytester: pytest.Pytester, make_dump: DumpMaker
) -> None:
    """A run that went on is one."""
    make_dump()
    assert run(pytester, "-p", "no:cacheprovider").ret == 1
    files = ["conftest.py", "dump.json", "h.db", "stack.json"]
    assert sorted(path.name for path in Path().iterdir() if "." in path.name) == files
    run(pytester, "--probe-out=out", "-x")
    counts = "SELECT cases, errors, warnings, passes, skips, not_run, exit_status FROM runs"
    assert rows(counts) == [(6, 2, 1, 2, 1, 0, 1), (1, 1, 0, 0, 0, 5, 1)]
    run(pytester, "--probe-out=out", "--probe-resume", "--probe-html=page.html")
    assert rows(counts) == [(6, 2, 1, 2, 1, 0, 1)] * 2
    assert rows("SELECT name, verdict, noise_ratio FROM history WHERE run_id = 2 AND api = 'Functional.relu'") == [
        (f"dump.json::Functional.relu.0.{direction}", "error", 512.0) for direction in ("forward", "backward")
    ]
    found = embedded(Path("page.html"), "history")
    assert (found["metric"], len(found["runs"])) == ("noise_ratio", 2)
    lines = lines_by_name(Path("page.html"))
    assert len(lines["Functional.linear.0.backward"]) == 2
    assert len(set(lines["Functional.linear.0.backward"])) == 1
    assert main(["report", "out", "-o", "later.html", "--history=h.db"]) == 0
    assert embedded(Path("later.html"), "history")["runs"] == found["runs"]
    assert lines_by_name(Path("later.html")) == lines


def lines_by_name(page: Path) -> dict[str, str]:
    names = (row[1] for row in embedded(page, "rows"))
    return dict(zip(names, embedded(page, "history")["lines"], strict=True))


def test_a_file_that_is_no_history_is_a_usage_error(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    Path("h.db").write_text("this is no database " * 100)
    said = refusal(pytester, "--probe-dump=dump.json", HISTORY)
    said.fnmatch_lines(["--probe-history: */h.db' cannot be used; *file is not a database*"])
    Path("h.db").unlink()
    with sqlite3.connect("h.db") as file:
        file.execute("PRAGMA application_id = 1886547810")
        file.execute("PRAGMA user_version = 9")
        file.execute("CREATE TABLE runs (id INTEGER)")
    said = refusal(pytester, "--probe-dump=dump.json", HISTORY)
    said.fnmatch_lines(["--probe-history: *it is of schema 9, this version knows 1: upgrade *"])


@pytest.fixture
def history(pytester: pytest.Pytester) -> str:
    """Five runs, in which linear got worse step by step, and one case became an error."""
    cases = [made_result(number) for number in range(16)]
    for number in range(5):
        changed = [with_ratio(cases[0], 4.0**number), *cases[1:15]]
        changed.append(made_result(15, "error") if number == 4 else cases[15])
        append(Path("h.db"), *changed, started=f"2026-11-{10 + number}T07:00:00+00:00", folder="")
    return "h.db"


def test_runs_are_listed(history: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["history", history]) == 0
    assert capsys.readouterr().out == snapshot
    assert main(["history", history, "--since=2027"]) == 0
    assert capsys.readouterr().out == "no runs\n"


def test_a_metric_is_drawn(history: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    assert main(["history", history, "Functional.linear"]) == 0
    assert capsys.readouterr().out == snapshot


@pytest.mark.parametrize("api", ["torch.nn.functional.linear", "Functional.lin*", "Functional.linear.0.forward"])
def test_ways_to_name_it(history: str, capsys: pytest.CaptureFixture[str], api: str) -> None:
    assert main(["history", history, api, "--since=2026-11-13"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[-1] == "the largest in run 5: dump.json::Functional.linear.0.forward"


def test_history_lists_cases_that_got_worse_between_two_runs(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", history, "--between=1,4"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "between run 1 and run 4: 1 case got worse by verdict or noise_ratio",
        "  dump.json::Functional.linear.0.forward: pass, 1 -> 64",
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["none.db"], "FILE: 'none.db' cannot be used; there is no such file"),
        (["dump.json"], "FILE: 'dump.json' cannot be used; it cannot be used as a history: file is not a database"),
        (["h.db", "Functional.linaer"], "API: 'Functional.linaer' cannot be used; no run has it; "),
        (["h.db", "Functional.linaer"], "(did you mean Functional.linear?)"),
        (["h.db", "Functional.linear", "--since=2027"], "no run since 2027 has it"),
        (["h.db", "--metric=noise"], "(did you mean noise_rms?)"),
        (["h.db", "--since=yesterday"], "--since: 'yesterday' cannot be used; give a date, as 2026-11-23"),
        (["h.db", "--between=1"], "--between: '1' cannot be used; give the numbers of two runs"),
        (["h.db", "--between=1,99"], "--between: '1,99' cannot be used"),
    ],
)
@pytest.mark.usefixtures("history")
def test_unusable_arguments_of_history_are_refused(
    args: list[str], words: str, make_dump: DumpMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    make_dump()
    assert main(["history", *args]) == 2
    assert words in capsys.readouterr().err
