"""Capture, then check: what our own capture recorded of every kind of small model is healthy on the device it ran on.

Runs of pytest inside pytest forget the modules that they imported; those that optimizers import are imported here once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch._inductor.test_operators
import torch.nn.functional as F

from pytest_probe import PrecisionDebugger, capture, seed_all
from tests.support import models

pytestmark = pytest.mark.compat


@pytest.mark.evidence
@pytest.mark.parametrize("model", models.ALL)
def test_a_captured_model_passes_its_check(model: str, pytester: pytest.Pytester) -> None:
    for task in ("statistics", "tensor"):
        seed_all(11)
        step = models.ALL[model]()
        debugger = PrecisionDebugger(dump_path=pytester.path / "dumps" / task, task=task)
        for _ in range(2):
            debugger.start()
            step()
            debugger.stop()
            debugger.step()
    result = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist")
    outcomes = result.parseoutcomes()
    assert set(outcomes) <= {"passed", "warned"}, outcomes
    assert outcomes["passed"] > 2 * 50


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_whose_input_alone_wants_a_gradient(dtype: torch.dtype, pytester: pytest.Pytester) -> None:
    seed_all(3)
    with capture(pytester.path / "dumps", list=["loss", "cross_entropy"]):
        for size in [(8, 5), (16, 100), (4, 3), (256, 7), (4, 6, 9, 5)]:
            target, weight = torch.randint(0, size[1], (size[0], *size[2:])), torch.rand(size[1]).to(dtype)
            target.view(-1)[1] = -100
            signs = torch.randint(0, 2, size).to(dtype) * 2 - 1
            for loss in (
                lambda x, t=target, w=weight: F.cross_entropy(x, t, weight=w),
                lambda x, t=target, w=weight: F.nll_loss(x, t, weight=w, reduction="sum"),
                lambda x, t=target, w=weight: F.nll_loss(x, t, weight=w),
                lambda x, s=signs: F.soft_margin_loss(x, s),
            ):
                loss(torch.randn(size).to(dtype).requires_grad_()).backward()
    result = pytester.runpytest_inprocess("--probe-dump=dumps", "-pno:xdist")
    # Terms of both signs, 100 times as large as their sum, which torch adds in 16 bit.
    # Some soft_margin_loss, or cross_entropy of several dimensions, rounds inside.
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"] + outcomes["warned"], outcomes["warned"] < 8) == (40, True), outcomes
    result.stdout.re_match_lines(
        [r".*Functional\.nll_loss\.8\.forward", r"\s*output\.0: off by .* of the result, explained by 16-bit"]
    )
