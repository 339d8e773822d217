"""A user's function on torch's CPU, in 16 bit, that calls kernels of torch's own which round inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from pytest_probe.standards.noise.explanation import OWN_KERNEL
from tests.check.conftest import normal

Function = Callable[..., Any]


HEALTHY: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "pooling": (lambda x: F.avg_pool2d(x, 5, 1).sin(), (normal(2, 4, 20, 20),)),
    "adaptive pooling": (lambda x: F.adaptive_avg_pool2d(x, 7), (normal(2, 4, 30, 30),)),
    "interpolation": (lambda x: F.interpolate(x, scale_factor=2.3, mode="bicubic"), (normal(2, 4, 16, 16),)),
    "grid": (
        lambda x, at: F.grid_sample(x, at.clamp(-1, 1), align_corners=False),
        (normal(2, 4, 16, 16), normal(2, 20, 20, 2)),
    ),
}


def scaled(y: torch.Tensor) -> torch.Tensor:
    return y * 1.02


def last_columns(y: torch.Tensor) -> torch.Tensor:
    return torch.cat((y[..., :-3], y[..., -3:] * 1.1), -1)


def one_zero(y: torch.Tensor) -> torch.Tensor:
    kept = torch.ones_like(y)
    kept.view(-1)[5] = 0
    return y * kept


def verdicts(function: Function, reference: Function, given: tuple[torch.Tensor, ...], dtype: str) -> list[Verdict]:
    narrow = [tensor.to(getattr(torch, dtype)).requires_grad_() for tensor in given]
    checker = Checker(RunRequest(device="cpu", allow=("none",)), Registry.default())
    return list(checker.compare(function, reference, narrow, key="inside", backward=True))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_function_is_a_warning_that_names_the_kernel(name: str, dtype: str) -> None:
    function, given = HEALTHY[name]
    found = verdicts(function, function, given, dtype)
    assert {verdict.verdict for verdict in found} == {"pass", "warning"} or name == "grid"
    assert all(verdict.verdict != "error" for verdict in found), [verdict.reason for verdict in found]
    assert any(f"torch's {OWN_KERNEL}" in verdict.reason for verdict in found)


@pytest.mark.evidence
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("fault", [scaled, last_columns, one_zero])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_fault_beside_such_a_kernel_stays_an_error(name: str, fault: Function, dtype: str) -> None:
    function, given = HEALTHY[name]
    forward, *_ = verdicts(lambda *args: fault(function(*args)), function, given, dtype)
    assert forward.verdict == "error"


def running(x: torch.Tensor) -> torch.Tensor:
    """What batch_norm writes to its running mean."""
    mean = torch.zeros_like(x[0])
    F.batch_norm(x, mean, torch.ones_like(mean), training=True, momentum=0.3)
    return mean


@pytest.mark.parametrize(
    ("function", "given"),
    [(lambda x: F.softmax(x, 1), normal(5, 37, 3)), (running, normal(37, 69))],
    ids=["few elements", "an argument"],
)
def test_few_elements_of_it_or_what_it_writes_to_an_argument_may_be_off(
    function: Function, given: torch.Tensor
) -> None:
    forward, *_ = verdicts(function, function, (given,), "bfloat16")
    assert (forward.verdict, f"torch's {OWN_KERNEL}" in forward.reason) == ("warning", True)
    forward, *_ = verdicts(lambda x: function(x) * 1.03, function, (given,), "bfloat16")
    assert forward.verdict == "error"


def test_such_a_kernel_may_overflow_inside_in_float16() -> None:
    """exp(20) is beyond float16, and the loss is 20."""

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.soft_margin_loss(x, y, reduction="none")

    given = torch.tensor([-20.0, 1.0, 2.0]), torch.ones(3)
    forward, *_ = verdicts(loss, loss, given, "float16")
    assert (forward.verdict, f"torch's {OWN_KERNEL}" in forward.reason) == ("warning", True)
    forward, *_ = verdicts(lambda x, y: loss(x, y) * 1.05, loss, given, "float16")
    assert forward.verdict == "error"


def test_what_is_no_kernel_of_torch_gets_nothing() -> None:
    """Sums in 16 bit that a user's function makes by itself are its own."""

    def mean(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[:, 0])
        for column in x.unbind(1):
            total = total + column
        return total / x.shape[1]

    (found, *_) = verdicts(mean, lambda x: x.mean(1), (normal(64, 500),), "bfloat16")
    assert found.verdict == "error"


def test_a_result_that_is_another_each_time_stays_an_error() -> None:
    calls: list[int] = []

    def racing(x: torch.Tensor) -> torch.Tensor:
        calls.append(0)
        return F.interpolate(x, scale_factor=2.3, mode="bicubic") * (1.05 if len(calls) == 1 else 1.0)

    function, given = HEALTHY["interpolation"]
    (found, *_) = verdicts(racing, function, given, "float16")
    assert found.verdict == "error"
