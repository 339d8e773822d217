"""results.jsonl, run.json, saved tensors, junit."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.acceptance.conftest import NAMES, PLANTED, SHOWN, DumpMaker, Probed
from tests.support.other_plugins import Ran
from tests.support.running import collected, refusal


def test_a_run_writes_its_results_run_and_junit_files(planted_run: Ran) -> None:
    everything_is_written(planted_run)


SPACED = """
    import pytest

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if hasattr(item.config, "workerinput") and hasattr(report, "probe_results"):
            report.probe_results = report.probe_results.replace("{", "{  ", 1)
        return report
"""


def test_two_workers_write_and_report_as_one(probed: Probed) -> None:
    """A warning is reported as warned; what is saved is asked for; junit of family xunit1 has the properties. The
    controller neither reads a result field by field nor writes it anew: spaces stay."""
    more = ("-n2", "-v", "--probe-save=all", "-o", "junit_family=xunit1")
    found = probed(*SHOWN[1:], *more, conftest=PLANTED + SPACED)
    everything_is_written(found, "saved")
    lines = (found.folder / "out/results.jsonl").read_text().splitlines()
    assert all(line.startswith('{  "id"') for line in lines)
    found.result.stdout.fnmatch_lines(["*WARNED *linear.0.forward*"])
    found.result.stdout.fnmatch_lines(["warnings:", "  *::*linear.0.forward", "    *max ULP 4096"])
    found.result.stdout.no_fnmatch_line("*imprecise*")
    assert saved(found, "saved in {}/Functional.relu.0.forward.pt") == NAMES[:5]


def everything_is_written(run: Ran, *more: str) -> None:
    run.result.stdout.fnmatch_lines(
        [
            "probe: dump.json: 4 records (pytorch, statistics, L1); no items: 1 Module entry",
            "Functional.relu.0.* in float32 on cpu: error",
            "6 cases, 2 pass, 1 warning, 2 error, 1 skip",
            "*2 failed, 2 passed, 1 skipped, 1 warned*",
        ]
    )
    results_and_run_are_whole(run, *more)
    junit_is_whole(run.folder / "junit.xml")


def results_and_run_are_whole(ran: Ran, *more: str) -> None:
    found = sorted(ran.rows, key=lambda result: NAMES.index(result["id"].partition("::")[2]))
    assert [result["id"] for result in found] == [f"dump.json::{name}" for name in NAMES]
    assert [result["verdict"] for result in found] == ["error", "error", "warning", "pass", "pass", "skip"]
    relu = found[0]
    assert {key: relu[key] for key in ("api", "direction", "dtype", "device")} == {
        "api": "Functional.relu",
        "direction": "forward",
        "dtype": "float32",
        "device": "cpu",
    }
    assert relu["duration"] > 0
    assert relu["outputs"][0] == {
        "name": "output.0",
        "shape": [2, 3],
        "dtype": "float32",
        "verdict": "error",
        "standard": "noise",
        "reason": "noise ratio 512 (limit 64)",
        "metrics": {"max_ulp": 4096.0, "max_abs": 0.5, "noise_ratio": 512.0, "noise_ratio_limit": 64.0},
        "worst": [{"index": [1, 2], "actual": 0.75, "expected": 0.25, "ulp": 4096.0, "ratio": 512.0}],
    }
    run = ran.run
    assert run["schema"] == 2
    assert run["seed"] == 3
    assert run["verdicts"] == {"error": 2, "warning": 1, "pass": 2, "skip": 1}
    assert (run["exit_status"], run["not_run"]) == (1, 0)
    assert run["dumps"][0]["label"] == "dump.json"
    assert run["dumps"][0]["digest"].startswith("sha256:")
    assert run["devices"][0]["device"] == "cpu"
    assert run["finished"] >= run["started"]
    names = [re.sub(r"\d{14}", "STAMP", path.name) for path in (ran.folder / "out").iterdir()]
    tables = ["accuracy_checking_details_STAMP.csv", "accuracy_checking_result_STAMP.csv", "detects.csv"]
    assert sorted(names) == [*tables, "items.json", "results.jsonl", "run.json", *more, "summary.md"]


def test_a_folder_with_results_is_refused(pytester: pytest.Pytester, healthy_run: Ran) -> None:
    shutil.copytree(healthy_run.folder, pytester.path, dirs_exist_ok=True)
    said = refusal(pytester, "--probe-dump=dump.json", "--probe-out=out")
    said.fnmatch_lines(
        ["--probe-out: '*out' * it holds results.jsonl of another run; give a new folder, *--probe-resume"]
    )
    assert Ran(healthy_run.result, pytester.path).rows == healthy_run.rows


WRITING = ("-pno:cacheprovider", "--probe-out=out", "--probe-html=page.html", "--probe-history=h.db")


def test_nothing_is_written_unasked_or_while_collecting(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    before = {path.name for path in pytester.path.iterdir()}
    pytester.runpytest("--probe-dump=dump.json", "-p", "no:cacheprovider")
    assert collected(pytester, "--probe-dump=dump.json", *WRITING, "--collect-only")
    assert {path.name for path in pytester.path.iterdir()} == before


def saved(found: Ran, said: str) -> list[str]:
    """The cases whose tensors and script are there."""
    folder = found.folder / "out/saved/dump.json"
    assert said.format(folder) in found.result.stdout.str()
    names = [name for name in NAMES if (folder / f"{name}.pt").exists()]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}{end}" for name in names for end in (".pt", ".py")
    )
    return names


@pytest.mark.usefixtures("planted")
def test_save_keeps_what_fails(probed: Probed) -> None:
    """Where warnings fail they are kept as failures are. A quiet run has one line of ours."""
    found = probed("--probe-save=failing", "--probe-strict", "--probe-api=linear", "-q")
    found.result.assert_outcomes(failed=1, passed=1)
    found.result.stdout.fnmatch_lines(
        [
            "to reproduce: pytest 'dump.json::Functional.linear.0.forward' --probe-strict",
            "probe: 2 cases, 1 pass, 1 warning",
        ]
    )
    found.result.stdout.no_fnmatch_line("*worst APIs*")
    assert saved(found, "saved in {}/Functional.linear.0.forward.pt") == NAMES[2:3]


def junit_is_whole(file: Path) -> None:
    cases = {case.get("name"): case for case in ElementTree.parse(file).iter("testcase")}
    assert sorted(map(str, cases)) == sorted(NAMES)
    relu = cases["Functional.relu.0.forward"]
    assert {p.get("name"): p.get("value") for p in relu.iter("property")} == {
        "probe.id": "dump.json::Functional.relu.0.forward",
        "probe.api": "Functional.relu",
        "probe.direction": "forward",
        "probe.dtype": "float32",
        "probe.device": "cpu",
        "probe.verdict": "error",
        "probe.standard": "auto",
        "probe.max_ulp": "4096.0",
        "probe.max_abs": "0.5",
        "probe.noise_ratio": "512.0",
    }
    failure = relu.find("failure")
    assert failure is not None
    assert failure.get("message") == "output.0: noise ratio 512 (limit 64)"
    assert cases["Torch.load.0.forward"].find("skipped") is not None


# What junit-10.xsd admits, by element: attributes and children. pytest adds properties to testcase.
SCHEMA = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
        {"properties", "testcase"},
    ),
    "testcase": ({"name", "time", "classname"}, {"skipped", "failure", "system-out", "system-err", "properties"}),
    "failure": ({"message", "type"}, set()),
    "skipped": ({"message", "type"}, set()),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
}


def test_junit_holds_what_the_schema_admits(planted_run: Ran) -> None:
    for element in ElementTree.parse(planted_run.folder / "junit.xml").iter():
        attributes, children = SCHEMA[element.tag]
        assert set(element.keys()) <= attributes
        assert {child.tag for child in element} <= children
