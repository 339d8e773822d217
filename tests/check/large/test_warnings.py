"""What explains drawn places in 16 bit stands for the whole where it tells how far others may be off."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import judging
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.support.large_calls import cut_small_calls, outputs

Tensor = torch.Tensor
Call = Callable[..., Tensor]
Fault = Callable[[Tensor], None]
SHAPE = 512, 64
ROWS, WORDS = 64, 1000


class Planted(torch.autograd.Function):
    """Itself, with a fault in its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fault: Fault) -> Tensor:
        ctx.fault = fault
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        wrong = gradient.clone()
        ctx.fault(wrong)
        return wrong, None


def of_norm(fault: Fault) -> OutputVerdict:
    """torch's own 16-bit batch_norm rounds its statistics on the CPU: a warning."""

    def call(x: Tensor, *others: Any) -> Tensor:
        found = F.batch_norm(x, *others)
        fault(found)
        return found

    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).bfloat16()
    function = F.batch_norm if fault is nothing else call
    return outputs(function, F.batch_norm, [x, None, None, None, None, True])["output.0"]


def of_loss(fault: Fault, device: str) -> OutputVerdict:
    """Of logits in 16 bit it rounds log-probabilities, so that its gradient is off by 3 %."""

    def call(x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(x if x.dtype is torch.float64 else Planted.apply(x, fault), targets)

    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(ROWS, WORDS, generator=generator) * 0.7).bfloat16()
    given = [logits, torch.randint(WORDS, (ROWS,), generator=generator)]
    return outputs(call, F.cross_entropy, given, device, backward=True)["grad.input.0"]


def nothing(x: Tensor) -> None:
    pass


def element(x: Tensor) -> None:
    x[37, 50] *= 1.5


def element_nan(x: Tensor) -> None:
    x[37, 50] = math.nan


def row(x: Tensor) -> None:
    x[41] *= 1.2


def tail(x: Tensor) -> None:
    x[-1, -7:] = 0


FAULTS = element, element_nan, row, tail


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small_calls(monkeypatch)


def test_healthy_calls_are_not_run_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.Judging, "_in_full", lambda *_: pytest.fail("runs in full"))
    found = of_norm(nothing)
    assert (found.verdict, OWN_KERNEL in found.reason, "sampled" in found.metrics) == ("warning", True, True)
    found = of_loss(nothing, "cpu")
    assert (found.verdict, "sampled" in found.metrics) == ("pass", True)


def test_the_cpus_own_errors_excuse_a_device() -> None:
    assert of_loss(nothing, "npu").verdict == "pass"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_elsewhere_is_an_error(fault: Fault) -> None:
    assert of_norm(fault).verdict == "error"
    assert [of_loss(fault, device).verdict for device in ("cpu", "npu")] == ["error", "error"]


def test_an_error_of_a_very_large_call_is_that_of_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "MANY", 2**14)
    found = of_loss(element, "cpu")
    assert (found.verdict, "sampled" in found.metrics) == ("error", True)
