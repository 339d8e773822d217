"""Capture, then check: what our own capture recorded of every kind of small model is healthy where it ran."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pytest_probe import PrecisionDebugger, capture, seed_all
from tests.support import models
from tests.support.other_plugins import Ran
from tests.support.running import ran

pytestmark = pytest.mark.compat
NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def recorded_steps(folder: Path, model: str, task: str, count: int) -> None:
    seed_all(11)
    step = models.ALL[model]()
    debugger = PrecisionDebugger(dump_path=folder, task=task)
    for _ in range(count):
        debugger.start()
        step()
        debugger.stop()
        debugger.step()


def recorded_losses(folder: Path, dtype: torch.dtype) -> None:
    seed_all(3)
    with capture(folder, list=["loss", "cross_entropy"]):
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


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run of what was recorded of all models and losses."""
    folder = tmp_path_factory.mktemp("own")
    for model in models.ALL:
        for task in ("statistics", "tensor"):
            recorded_steps(folder / "dumps" / model / task, model, task, 2)
    for name, dtype in NARROW.items():
        recorded_losses(folder / "dumps" / name, dtype)
    return ran(folder, "--probe-dump=dumps", "--probe-out=out", "-pno:xdist")


def verdicts(found: Ran, dump: str) -> Counter[str]:
    return Counter(row["verdict"] for row in found.rows if row["id"].startswith(f"{dump}/"))


@pytest.mark.parametrize("model", models.ALL)
def test_a_captured_model_passes_its_check(checked: Ran, model: str) -> None:
    found = verdicts(checked, model)
    assert found.keys() <= {"pass", "warning"}
    assert found["pass"] > 2 * 50


def test_recorded_outputs_and_gradients_are_judged(tmp_path: Path) -> None:
    recorded_steps(tmp_path / "dumps", "gpt", "tensor", 1)
    outcomes = ran(tmp_path, "--probe-dump=dumps", "--probe-device=recorded").result.parseoutcomes()
    assert set(outcomes) <= {"passed", "skipped"}, outcomes
    assert outcomes["passed"] > 10 * outcomes.get("skipped", 0)


@pytest.mark.parametrize("dtype", NARROW)
def test_losses_whose_input_alone_wants_a_gradient(checked: Ran, dtype: str) -> None:
    """Some soft_margin_loss, or cross_entropy of several dimensions, rounds inside."""
    found = verdicts(checked, dtype)
    assert (found["pass"] + found["warning"], found.total(), found["warning"] < 8) == (40, 40, True), found


def test_terms_of_both_signs_100_times_as_large_as_their_sum_are_explained(checked: Ran) -> None:
    """torch adds them in 16 bit."""
    for dtype in NARROW:
        checked.result.stdout.re_match_lines(
            [
                rf"  {dtype}/.*Functional\.nll_loss\.8\.forward",
                r"\s*output\.0: off by .* of the result, explained by 16-bit",
            ]
        )
