"""--probe-isolate: one process of its own for the cases, and results as without it."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.acceptance.test_workers import FAULTS
from tests.features.resume.test_resume import RUN, results


def test_results_are_those_of_a_run_without_it(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """But for what ends the process: relu by a signal, argmax by its reference."""
    make_dump()
    pytester.runpytest(*RUN, "--probe-out=without")
    pytester.makeconftest(FAULTS)
    result = pytester.runpytest(*RUN, "--probe-isolate", "--probe-out=with")
    result.stdout.fnmatch_lines(["probe: cpu, torch *, dtype recorded, *", "6 cases, 2 pass, 2 error, 2 skip"])
    died = ("relu", "argmax")
    without, isolated = results(pytester, "without"), results(pytester, "with")
    assert [line for line in isolated if not any(name in line for name in died)] == [
        line for line in without if not any(name in line for name in died)
    ]
    kinds = [line.split('"kind": ')[1].split(",")[0] for line in isolated if any(name in line for name in died)]
    assert sorted(kinds) == ['"crash"', '"crash"', '"no reference"']
    runs = [json.loads((pytester.path / name / "run.json").read_text()) for name in ("without", "with")]
    assert runs[0]["devices"] == runs[1]["devices"] != []


@pytest.mark.parametrize("other", ["-n2", "-n1"])
def test_isolation_with_workers_is_refused(pytester: pytest.Pytester, make_dump: DumpMaker, other: str) -> None:
    make_dump()
    result = pytester.runpytest("--probe-dump=dump.json", "--probe-isolate", other)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    wanted = "under -n each worker is a process of its own already; leave one of the two out"
    result.stderr.fnmatch_lines([f"ERROR: --probe-isolate: True cannot be used; {wanted}"])


def test_other_runs_stay_as_they_are(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ini key isolates cases, and no tests."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\nprobe_isolate = true\n")
    pytester.makepyfile("import os\ndef test_here(): assert 'PYTEST_XDIST_WORKER' not in os.environ")
    pytester.runpytest().assert_outcomes(passed=1)
