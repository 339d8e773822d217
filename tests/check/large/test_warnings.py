"""What explains drawn places in 16 bit stands for the whole where it tells how far others may be off."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.large_faults import changed
from pytest_probe.check import judging
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.support.gradients import with_gradient
from tests.support.large_calls import cut_small_calls, outputs

Tensor = torch.Tensor
Call = Callable[..., Tensor]
Fault = Callable[[Tensor], Tensor]
SHAPE = 512, 64
ROWS, WORDS = 64, 1000
FAULTS: dict[str, Fault] = {
    "one element": changed((37, 50), lambda right: right * 1.5),
    "one element, NaN": changed((37, 50), lambda right: math.nan),
    "a row": changed(41, lambda right: right * 1.2),
    "a tail": changed((-1, slice(-7, None)), torch.zeros_like),
}


def of_norm(fault: Fault | None = None) -> OutputVerdict:
    """torch's own 16-bit batch_norm rounds its statistics on the CPU: a warning."""

    def wrong(*args: Any) -> Tensor:
        assert fault is not None
        return fault(F.batch_norm(*args))

    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).bfloat16()
    function = wrong if fault else F.batch_norm
    return outputs(function, F.batch_norm, [x, None, None, None, None, True])["output.0"]


def of_loss(device: str, fault: Fault = torch.clone) -> OutputVerdict:
    """Of logits in 16 bit it rounds log-probabilities, so that its gradient is off by 3 %."""

    def call(x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(x if x.dtype is torch.float64 else with_gradient(x, fault), targets)

    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(ROWS, WORDS, generator=generator) * 0.7).bfloat16()
    given = [logits, torch.randint(WORDS, (ROWS,), generator=generator)]
    return outputs(call, F.cross_entropy, given, device, backward=True)["grad.input.0"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small_calls(monkeypatch)


def test_healthy_calls_are_not_run_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.Judging, "_in_full", lambda *_: pytest.fail("runs in full"))
    found = of_norm()
    assert (found.verdict, OWN_KERNEL in found.reason, "sampled" in found.metrics) == ("warning", True, True)
    found = of_loss("cpu")
    assert (found.verdict, "sampled" in found.metrics) == ("pass", True)


def test_the_cpus_own_errors_excuse_a_device() -> None:
    assert of_loss("npu").verdict == "pass"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_elsewhere_is_an_error(fault: str) -> None:
    assert of_norm(FAULTS[fault]).verdict == "error"
    assert [of_loss(device, FAULTS[fault]).verdict for device in ("cpu", "npu")] == ["error", "error"]
