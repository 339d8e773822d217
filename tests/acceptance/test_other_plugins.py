"""Beside the plugins that people have: counts, one row an item with its last verdict, properties, their own files."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.acceptance.conftest import NAMES, DumpMaker, written
from tests.support.other_plugins import Ran, run_beside
from tests.support.running import ran

pytestmark = pytest.mark.usefixtures("forked")

# By its modules: `-p html` would be the standard library's.
HTML = ("pytest_html.plugin", "pytest_html.fixtures", "metadata")
# What conftest.PLANTED makes of conftest.entries.
VERDICTS = dict(zip(NAMES, ["error", "error", "warning", "pass", "pass", "skip"], strict=True))
STATUSES = {"error": "failed", "warning": "passed", "pass": "passed", "skip": "skipped"}
JUNIT = {"error": ("failure",), "warning": (), "pass": (), "skip": ("skipped",)}

# relu is wrong the first time, linear always; argmax is warned about. No second run of linear's backward.
FIRST_WRONG = """
    from msgspec.structs import replace
    from itertools import count

    import pytest
    import torch

    calls = count()
    setups = count()

    def relu(*args, **kwargs):
        return torch.nn.functional.relu(*args, **kwargs) * (1 if next(calls) else 2)

    def linear(*args, **kwargs):
        return torch.nn.functional.linear(*args, **kwargs) * 2

    def pytest_probe_register(registry):
        registry.calls.update({"Functional.relu": relu, "Functional.linear": linear})

    def pytest_probe_verdict(case, verdict):
        if case.record.api == "argmax":
            return replace(verdict, verdict="warning")

    def pytest_runtest_setup(item):
        if item.name == "Functional.linear.0.backward" and next(setups):
            pytest.fail("no second run")
"""

# argmax ends its process, as a kernel of a vendor's does.
EXITS = """
    import os

    def pytest_probe_register(registry):
        registry.calls["Torch.argmax"] = lambda *args, **kwargs: os._exit(7)
"""

# argmax never ends. Whatever is slow to import counts for no item.
HANGS = """
    import sys
    from threading import Event

    import pytest

    def pytest_probe_register(registry):
        registry.calls["Torch.argmax"] = lambda *args, **kwargs: Event().wait()

    def pytest_collection_modifyitems(items):
        for item in items:
            if "argmax" in item.name:
                item.add_marker(pytest.mark.timeout(1))

    def pytest_runtest_setup(item):
        assert "torch" in sys.modules
"""

# Notes each call on the device.
COUNTS = """
    import torch

    def relu(*args, **kwargs):
        with open("calls", "a") as file:
            file.write("x")
        return torch.nn.functional.relu(*args, **kwargs)

    def pytest_probe_register(registry):
        registry.calls["Functional.relu"] = relu
"""


def assert_whole(ran: Ran, verdicts: Mapping[str, str] = VERDICTS, in_setup: str = "") -> None:
    """One row an item, in results.jsonl, run.json and in junit."""
    assert ran.verdicts == ran.junit_verdicts == verdicts
    assert sum(ran.run["verdicts"].values()) == len(verdicts)
    assert ran.run["not_run"] == 0
    kinds = {case.properties["probe.id"]: case.kinds for case in ran.junit if case.properties}
    assert kinds == {
        f"dump.json::{name}": ("error",) if name == in_setup else JUNIT[verdict] for name, verdict in verdicts.items()
    }


@pytest.mark.usefixtures("planted")
def test_reports_of_other_tools(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    plugins = [*HTML, "pytest_reportlog", "allure_pytest", "pytest_cov"]
    asked = ["--html=r.html", "--self-contained-html", "--report-log=r.jsonl", "--alluredir=allure"]
    measured = ["--cov=conftest", "--cov-report=json:cov.json", "--probe-dtype=recorded,bfloat16"]
    ran = run_beside(pytester, monkeypatch, plugins, *asked, *measured, workers=1)
    narrow = {f"{name}[bfloat16]": verdict for name, verdict in VERDICTS.items() if verdict != "skip"}
    verdicts = VERDICTS | narrow
    assert ran.summary == {"failed": 4, "passed": 4, "warned": 2, "skipped": 1}
    assert_whole(ran, verdicts)
    statuses = {name: STATUSES[verdict] for name, verdict in verdicts.items()}
    shown = allure(ran.folder / "allure")
    assert {name: status for name, status, _ in shown} == statuses
    # It tells the dtypes of a case apart.
    assert len({history for _, _, history in shown}) == len(shown) == len(verdicts)
    assert {name: result.lower() for name, result in html_results(ran.folder / "r.html")} == statuses
    logged = report_log(ran.folder / "r.jsonl")
    assert {name: report["outcome"] for name, report in logged.items()} == statuses
    properties = {name: dict(report["user_properties"]) for name, report in logged.items()}
    assert {name: each["probe.verdict"] for name, each in properties.items()} == verdicts
    covered = json.loads((ran.folder / "cov.json").read_text())["files"]["conftest.py"]
    assert covered["summary"]["percent_covered"] == 100


def test_the_last_of_repeated_runs_counts(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process; of workers the next test has one that dies."""
    make_dump()
    pytester.makeconftest(FIRST_WRONG)
    ran = run_beside(pytester, monkeypatch, ["rerunfailures", *HTML], "--reruns=1", "--html=r.html")
    verdicts = dict(zip(NAMES, ["pass", "pass", "error", "error", "warning", "skip"], strict=True))
    assert ran.summary == {"failed": 1, "errors": 1, "passed": 2, "warned": 1, "skipped": 1, "rerun": 3}
    assert_whole(ran, verdicts, in_setup="Functional.linear.0.backward")
    ran.result.stdout.fnmatch_lines(["6 cases, 2 pass, 1 warning, 2 error, 1 skip"])
    ran.result.stdout.no_fnmatch_line("*did not run*")
    assert {row["reason"] for row in ran.rows if row["id"].endswith("linear.0.backward")} == {"no second run"}
    last = {name: result.lower() for name, result in html_results(ran.folder / "r.html") if result != "Rerun"}
    shown = {name: STATUSES[verdict] for name, verdict in verdicts.items()}
    assert last == shown | {"Functional.linear.0.backward": "error"}


def test_reruns_count_the_death_of_a_worker(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    pytester.makeconftest(EXITS)
    plugins = ["rerunfailures", *HTML, "pytest_reportlog"]
    args = ["--reruns=1", "--html=r.html", "--report-log=r.jsonl"]
    ran = run_beside(pytester, monkeypatch, plugins, *args, workers=1)
    assert ran.summary == {"failed": 1, "passed": 4, "skipped": 1, "rerun": 1}
    verdicts = dict.fromkeys(NAMES, "pass") | {"Torch.argmax.0.forward": "error", "Torch.load.0.forward": "skip"}
    assert_whole(ran, verdicts)
    (died,) = (case.properties for case in ran.junit if case.kinds == ("failure",))
    assert died == {
        "probe.id": "dump.json::Torch.argmax.0.forward",
        "probe.api": "Torch.argmax",
        "probe.direction": "forward",
        "probe.device": "cpu",
        "probe.verdict": "error",
        "probe.reason": "the process died with exit status 7 while the device ran it"
        "; that was death 2 of this case, which is not run again",
        "probe.kind": "crash",
    }
    assert ("Torch.argmax.0.forward", "Failed") in html_results(ran.folder / "r.html")
    assert report_log(ran.folder / "r.jsonl")["Torch.argmax.0.forward"]["outcome"] == "failed"


@pytest.mark.parametrize(("method", "workers"), [("signal", 0), ("thread", 1)])
def test_a_case_that_pytest_timeout_ends_fails_alone(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, method: str, workers: int
) -> None:
    make_dump()
    pytester.makeconftest(HANGS)
    ran = run_beside(pytester, monkeypatch, ["timeout"], f"--timeout-method={method}", workers=workers)
    assert ran.summary == {"failed": 1, "passed": 4, "skipped": 1}
    verdicts = dict.fromkeys(NAMES, "pass") | {"Torch.argmax.0.forward": "error", "Torch.load.0.forward": "skip"}
    assert_whole(ran, verdicts)
    (reason,) = (row["reason"] for row in ran.rows if row["verdict"] == "error")
    assert reason.startswith(
        "cpu raised Failed: Timeout (>1.0s)" if method == "signal" else "the process died with exit status 1"
    )


def test_a_limit_that_ends_the_run_keeps_what_was_judged(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dump()
    pytester.makeconftest(HANGS)
    ran = run_beside(pytester, monkeypatch, ["timeout"], "--timeout-method=thread")
    assert ran.verdicts == dict.fromkeys(NAMES[:4], "pass")
    assert ran.run["finished"] is None


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("plain")
    written(folder / "dump.json")
    (folder / "conftest.py").write_text(dedent(COUNTS))
    return ran(folder, "--probe-dump=dump.json", "--probe-out=out")


def test_a_shuffled_run_has_the_same_results(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch, plain: Ran
) -> None:
    """Workers, which have an order of their own: tests/features/test_contract.py."""
    make_dump()
    pytester.makeconftest(COUNTS)
    ran = run_beside(pytester, monkeypatch, ["randomly"], "-p", "randomly", "--randomly-seed=4")
    assert ran.summary == {"passed": 5, "skipped": 1}
    assert_whole(ran, dict.fromkeys(NAMES[:5], "pass") | {NAMES[5]: "skip"})
    assert timeless(ran) == timeless(plain)
    order = list(ran.verdicts)
    assert order != NAMES
    assert abs(order.index(NAMES[2]) - order.index(NAMES[3])) == 1
    assert (ran.folder / "calls").read_text() == "x"


def test_pytest_repeat_repeats_tests_and_no_items_of_dumps(
    pytester: pytest.Pytester, make_dump: DumpMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest-repeat repeats test functions, whose ids differ; an item of a dump runs once."""
    make_dump()
    pytester.makepyfile(
        test_own="""
        import torch

        def test_relu(probe):
            probe.check(torch.relu, reference=torch.relu, inputs=[probe.tensor((4,))])
        """
    )
    ran = run_beside(pytester, monkeypatch, ["repeat"], "--count=2", "test_own.py")
    assert ran.summary == {"passed": 7, "skipped": 1}
    assert [row["id"] for row in ran.rows if row["id"].startswith("test_own")] == [
        "test_own.py::test_relu[1-2]::relu.0.forward",
        "test_own.py::test_relu[2-2]::relu.0.forward",
    ]
    assert ran.verdicts.keys() > set(NAMES)
    assert ran.run["not_run"] == 0


def timeless(found: Ran) -> dict[str, dict[str, Any]]:
    """Its results without the time they took and the folder that they are of."""
    rows = [row | {"reason": row["reason"].replace(str(found.folder), "")} for row in found.rows]
    return {row["id"]: {key: value for key, value in row.items() if key not in ("duration", "parts")} for row in rows}


def allure(folder: Path) -> list[tuple[str, str, str]]:
    """Name, status and history's id of each result."""
    found = [json.loads(path.read_text()) for path in folder.glob("*-result.json")]
    return [(each["name"], each["status"], each["historyId"]) for each in found]


def html_results(path: Path) -> list[tuple[str, str]]:
    """Entry and result of each row of pytest-html's table."""
    blob = re.search(r'data-jsonblob="([^"]*)"', path.read_text())
    assert blob is not None
    tests = json.loads(html.unescape(blob[1]))["tests"]
    return [(name.partition("::")[2], row["result"]) for name, rows in tests.items() for row in rows]


def report_log(path: Path) -> dict[str, Any]:
    """The report of each item that tells its outcome, by entry."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    reports = [each for each in lines if each["$report_type"] == "TestReport" and each["when"] == "call"]
    return {report["nodeid"].partition("::")[2]: report for report in reports}
