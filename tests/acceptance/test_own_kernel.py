"""A 16-bit call that torch's own CPU kernel rounds inside: a warning there, and a fault in its place an error."""

from __future__ import annotations

import pytest
import torch

from pytest_probe.reports.results_file import read_results
from tests.support.writing import entries, write_dump

CONFTEST = """
import torch

def pytest_probe_register(registry):
    registry.calls["Functional.softmax"] = lambda x, dim: torch.softmax(x, dim) * 1.05
"""


def test_it_is_a_warning_on_torchs_cpu(pytester: pytest.Pytester) -> None:
    """On another device it passes: tests/device/test_check.py."""
    pytester.makeconftest(CONFTEST)
    x = torch.rand(40, 30, generator=torch.Generator().manual_seed(0)).bfloat16()
    calls = [entries(f"{namespace}.softmax.0", torch.softmax, x, 0) for namespace in ("Torch", "Functional")]
    write_dump(pytester.path, calls[0] | calls[1])
    pytester.runpytest("--probe-dump=dump.json", "--probe-device=cpu", "--probe-out=out")
    right, wrong = read_results(pytester.path / "out/results.jsonl")
    assert (right.verdict, wrong.verdict) == ("warning", "error")
    assert "torch's own 16-bit kernel here" in right.reason
    assert "torch's own 16-bit kernel here" not in wrong.reason
