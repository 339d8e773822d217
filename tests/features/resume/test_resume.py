"""--probe-resume: what was killed goes on, and ends with the results of a run that nobody disturbed."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tests.acceptance.conftest import NAMES, SHOWN, DumpMaker
from tests.support.other_plugins import Ran
from tests.support.running import refusal, rows, timeless

pytestmark = pytest.mark.usefixtures("forked")

# The process dies at one case; `once`: the first time only.
KILLER = """
    import os, pathlib, signal

    def pytest_probe_inputs(case, arguments):
        marker = pathlib.Path("killed")
        if case.record.api == "argmax" and not ({once} and marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""
RUN = ("--probe-dump=dump.json", "--probe-device=cpu", "--probe-seed=3")


@pytest.fixture
def undisturbed(pytester: pytest.Pytester, healthy_run: Ran) -> dict[str, Any]:
    """What that run found; the test has its own copy in undisturbed/, in which a reason names the test's folder."""
    for name in ("dump.json", "stack.json"):
        shutil.copy(healthy_run.folder / name, pytester.path)
    shutil.copytree(healthy_run.folder / "out", pytester.path / "undisturbed")
    results = pytester.path / "undisturbed/results.jsonl"
    results.write_text(results.read_text().replace(str(healthy_run.folder), str(pytester.path)))
    return timeless("undisturbed")


def test_a_killed_run_is_resumed(pytester: pytest.Pytester, undisturbed: dict[str, Any]) -> None:
    pytester.makeconftest(KILLER.format(once=True))
    out = [*RUN, "--probe-out=out"]
    assert pytester.runpytest_subprocess(*out).ret == -9
    assert len(timeless()) == 4
    with (pytester.path / "out/results.jsonl").open("a") as file:
        file.write('{"id": "dump.json::Torch.arg')
    resumed = pytester.runpytest(*out, "--probe-resume", "--junitxml=junit.xml")
    resumed.assert_outcomes(passed=1, skipped=1)
    resumed.stdout.fnmatch_lines(["probe: going on with the run in *out", "6 cases, 5 pass, 1 skip", "*4 resumed*"])
    cases = ElementTree.parse(pytester.path / "junit.xml").getroot().iter("testcase")
    assert sorted(case.attrib["name"].strip() for case in cases) == sorted(NAMES)
    assert timeless() == undisturbed
    suffixes = sorted(path.suffix for path in (pytester.path / "out").iterdir())
    assert suffixes == [*[".csv"] * 3, *[".json"] * 2, ".jsonl", ".md"]
    run = json.loads((pytester.path / "out/run.json").read_text())
    assert (run["verdicts"], run["not_run"], run["exit_status"]) == ({"pass": 5, "skip": 1}, 0, 0)


def test_a_worker_that_is_killed_once_is_replaced_and_its_case_runs_again(
    pytester: pytest.Pytester, undisturbed: dict[str, Any]
) -> None:
    pytester.makeconftest(KILLER.format(once=True))
    assert pytester.runpytest(*RUN, "--probe-out=out", "-n1").ret == 0
    assert timeless() == undisturbed


def test_a_case_that_killed_two_runs_is_an_error(pytester: pytest.Pytester, undisturbed: dict[str, Any]) -> None:
    pytester.makeconftest(KILLER.format(once=False))
    out = [*RUN, "--probe-out=out"]
    assert pytester.runpytest_subprocess(*out).ret == -9
    assert pytester.runpytest_subprocess(*out, "--probe-resume").ret == -9
    third = pytester.runpytest(*out, "--probe-resume")
    third.stdout.fnmatch_lines(["FAILED dump.json::Torch.argmax.0.forward *", "6 cases, 4 pass, 1 error, 1 skip"])
    assert third.ret == pytest.ExitCode.TESTS_FAILED
    found = timeless()
    argmax = found.pop("Torch.argmax.0.forward")
    assert (argmax["verdict"], argmax["kind"]) == ("error", "crash")
    assert "death 2 of this case" in argmax["reason"]
    assert found == {name: row for name, row in undisturbed.items() if name in found}


def test_a_finished_run_is_reported_again(pytester: pytest.Pytester, planted_run: Ran) -> None:
    shutil.copytree(planted_run.folder, pytester.path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in (pytester.path / "out").iterdir()}
    first, second = planted_run.result, pytester.runpytest(*SHOWN, "--probe-resume")
    summary = ["6 cases, 2 pass, 1 warning, 2 error, 1 skip", "skipped:", "*  outside the allow-list"]
    for run in (first, second):
        run.stdout.fnmatch_lines(summary)
        assert run.ret == pytest.ExitCode.TESTS_FAILED
    second.stdout.fnmatch_lines(["FAILED dump.json::Functional.relu.0.forward *", "*2 failed, 4 resumed*"])
    again = {path.name: path.read_bytes() for path in (pytester.path / "out").iterdir()}
    # Its header says that the run goes on with another one.
    pages = [each.pop("summary.md").decode() for each in (before, again)]
    assert again == before
    for page in pages:
        assert page.startswith("## pytest-probe: 2 cases failed\n")
        assert page.count("ward` | output.0: noise ratio 512 (limit 64) |") == 2


def test_checks_of_tests_run_again(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    make_dump()
    pytester.makepyfile(
        """
        import torch
        from pathlib import Path

        def test_first(probe):
            probe.check(torch.relu, reference=torch.relu, inputs=[torch.ones(3)])

        def test_second(probe):
            if not Path("raised").exists():
                Path("raised").touch()
                raise KeyboardInterrupt
            probe.check(torch.tanh, reference=torch.tanh, inputs=[torch.ones(3)])
        """
    )
    out = [*RUN, ".", "--probe-out=out", "--probe-api=argmax"]
    assert pytester.runpytest_subprocess(*out).ret == pytest.ExitCode.INTERRUPTED
    pytester.runpytest(*out, "--probe-resume").assert_outcomes(passed=2)
    ids = [row["id"].rpartition("::")[2] for row in rows()]
    assert sorted(ids) == ["Torch.argmax.0.forward", "relu.0.forward", "tanh.0.forward"]


@pytest.mark.usefixtures("undisturbed")
def test_resume_refuses_a_folder_of_another_dump(pytester: pytest.Pytester) -> None:
    """Of other settings: tests/acceptance/test_run_identity.py."""
    said = refusal(pytester, *RUN, "--probe-out=out", "--probe-resume")
    said.fnmatch_lines(["*run.json cannot be read (No such file or directory)*"])
    out = (*RUN, "--probe-out=undisturbed", "--probe-resume")
    dump = pytester.path / "dump.json"
    dump.write_text(dump.read_text() + " ")
    refusal(pytester, *out).fnmatch_lines(["*its run has dumps dump.json sha256:*"])
    (pytester.path / "undisturbed/run.json").write_text("[]")
    refusal(pytester, *out).fnmatch_lines(["*its run.json is none of pytest-probe's*"])
