"""--probe-isolate: one process of its own for the cases, and results as without it."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.conftest import DumpMaker
from tests.acceptance.test_workers import FAULTS
from tests.features.resume.test_resume import RUN
from tests.support.running import by_case


def test_what_ends_a_process_is_a_result(pytester: pytest.Pytester, make_dump: DumpMaker) -> None:
    """Of relu a signal, of argmax its reference; the other results are those of a run without it: test_contract.py."""
    make_dump()
    pytester.makeconftest(FAULTS)
    result = pytester.runpytest(*RUN, "--probe-isolate", "--probe-out=out")
    result.stdout.fnmatch_lines(["probe: cpu, torch *, dtype recorded, *", "6 cases, 2 pass, 2 error, 2 skip"])
    found = {name: row.get("kind", "") for name, row in by_case().items() if "relu" in name or "argmax" in name}
    assert found == {
        "Functional.relu.0.forward": "crash", "Functional.relu.0.backward": "crash",
        "Torch.argmax.0.forward": "no reference",
    }  # fmt: skip
    (device,) = json.loads((pytester.path / "out/run.json").read_text())["devices"]
    assert device["device"] == "cpu"


def test_other_runs_stay_as_they_are(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ini key isolates cases, and no tests."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\nprobe_isolate = true\n")
    pytester.makepyfile("import os\ndef test_here(): assert 'PYTEST_XDIST_WORKER' not in os.environ")
    pytester.runpytest().assert_outcomes(passed=1)
