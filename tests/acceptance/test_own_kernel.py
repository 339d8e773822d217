"""A 16-bit call that torch's own CPU kernel rounds inside: a warning there, and a fault in its place an error."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.reports.results_file import read_results
from tests.support.writing import entries, write_dump

OTHER = """
from tests.support.devices import Emulated

def pytest_probe_register(registry):
    registry.devices["other"] = Emulated
"""
FAULT = """
    import torch

    registry.calls["Functional.softmax"] = lambda x, dim: torch.softmax(x, dim) * 1.05
"""
OUTCOMES = {"pass": "passed", "warning": "warned", "error": "failed"}


@pytest.mark.parametrize(
    ("device", "fault", "verdict"),
    [("cpu", "", "warning"), ("cpu", FAULT, "error"), ("other", "", "pass"), ("other", FAULT, "error")],
    ids=["cpu", "cpu, fault", "other", "other, fault"],
)
def test_it_is_a_warning_on_torchs_cpu_alone(pytester: pytest.Pytester, device: str, fault: str, verdict: str) -> None:
    pytester.makeconftest(OTHER + fault)
    x = torch.rand(40, 30, generator=torch.Generator().manual_seed(0)).bfloat16()
    write_dump(pytester.path, entries("Functional.softmax.0", torch.softmax, x, 0))
    options = ("--probe-dump=dump.json", f"--probe-device={device}")
    assert pytester.runpytest(*options, "--probe-out=out").parseoutcomes() == {OUTCOMES[verdict]: 1}
    (result,) = read_results(pytester.path / "out/results.jsonl")
    assert ("torch's own 16-bit kernel here" in result.reason) == (verdict == "warning")
    strict = pytester.runpytest(*options, "--probe-strict").parseoutcomes()
    assert strict == {"passed" if verdict == "pass" else "failed": 1}
