"""Capture, then check: what our own capture recorded of every kind of small model is healthy on the device it ran on.

Runs of pytest inside pytest forget the modules that they imported; those that optimizers import are imported here once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch._dynamo
import torch._inductor.test_operators  # noqa: F401

from pytest_probe import PrecisionDebugger, seed_all
from tests.recording import models


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("model", models.ALL)
def test_capture_then_check(model: str, task: str, pytester: pytest.Pytester) -> None:
    seed_all(11)
    step = models.ALL[model]()
    debugger = PrecisionDebugger(dump_path=pytester.path / "dumps", task=task)
    for _ in range(2):
        debugger.start()
        step()
        debugger.stop()
        debugger.step()
    result = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist")
    outcomes = result.parseoutcomes()
    assert set(outcomes) <= {"passed", "imprecise"}, outcomes
    assert outcomes["passed"] > 50


def test_recorded_outputs_and_gradients_are_judged(pytester: pytest.Pytester, tmp_path: Path) -> None:
    seed_all(11)
    step = models.ALL["gpt"]()
    debugger = PrecisionDebugger(dump_path=pytester.path / "dumps", task="tensor")
    debugger.start()
    step()
    debugger.close()
    outcomes = pytester.runpytest_inprocess("--probe-dump=dumps", "--probe-device=recorded").parseoutcomes()
    assert set(outcomes) <= {"passed", "skipped"}, outcomes
    assert outcomes["passed"] > 10 * outcomes.get("skipped", 0)
