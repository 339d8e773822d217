"""Sums in float32, one term after another: a warning that says so, where nothing else is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_probe.check import Checker, RunRequest
from pytest_probe.model.verdict import Verdict
from pytest_probe.registry import Registry
from tests.evidence.sums import CASES, FAULTS, in_turn, normal
from tests.support.devices import Emulated

pytestmark = pytest.mark.usefixtures("no_causes")

DEVICES = ("cpu", "other")
MILLION = 1_000_000
vector_norm = torch.linalg.vector_norm
Function = Callable[..., Any]


def verdict(function: Function, reference: Function, inputs: Any, device: str, api: str = "") -> Verdict:
    registry = Registry.default()
    registry.devices["other"] = Emulated
    checker = Checker(RunRequest(device=device, allow=("none",)), registry)
    [found] = checker.compare(function, reference, inputs, api=api, key="sums")
    return found


def skip_where_the_cpu_adds_in_few_lanes(name: str, device: str) -> None:
    """Beside another device the error of the CPU's own float32 kernel is a measure; of equal terms it may be large."""
    if name == "dot" and device == "other":
        given = CASES[name].inputs()
        exact, found = torch.dot(*(each.double() for each in given)), torch.dot(*given)
        if abs(found - exact) > 2.0**-24 * abs(exact):
            pytest.skip("this processor's own dot adds many equal terms one after another")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_a_sum_in_turn_is_a_warning_that_names_the_number_of_terms(name: str, device: str) -> None:
    skip_where_the_cpu_adds_in_few_lanes(name, device)
    case = CASES[name]
    found = verdict(case.adding(in_turn), case.reference, case.inputs(), device)
    assert found.verdict == "warning"
    assert "terms one after another in float32" in found.reason
    assert "a pairwise sum by" in found.reason


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_another_error_is_no_sum_in_turn(name: str, fault: str, device: str) -> None:
    skip_where_the_cpu_adds_in_few_lanes(name, device)
    case = CASES[name]
    assert verdict(case.adding(FAULTS[fault]), case.reference, case.inputs(), device).verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("api", ["", "Torch.linalg.vector_norm"])
def test_the_norm_of_many_numbers_is_a_warning(api: str, device: str) -> None:
    found = verdict(vector_norm, vector_norm, [normal(2_400_000)], device, api)
    assert (found.verdict, found.reason[:48]) == ("warning", "output.0: adds 2,400,000 terms one after another")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [1.0, 3.0])
def test_norms_of_other_orders_are_no_error(order: float, device: str) -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return vector_norm(x, order)

    assert verdict(norm, norm, [normal(MILLION)], device).verdict == "warning"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("api", ["", "Torch._foreach_norm"])
def test_norms_of_a_list_name_the_terms_of_their_tensor(api: str, device: str) -> None:
    function, tensors = torch._foreach_norm, [normal(1000), normal(512, 4500), normal(4_000_000)]
    found = verdict(function, function, [tensors], device, api)
    reasons = [output.reason.partition(" one")[0] for output in found.outputs]
    assert reasons == ["", "adds 2,304,000 terms", "adds 4,000,000 terms"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [400_000, 2_400_000])
def test_clipped_gradients_are_no_error(count: int, device: str) -> None:
    def clipped(weight: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(weight), torch.nn.Parameter(weight[:10])]
        for parameter in parameters:
            parameter.grad = gradient[: len(parameter)].clone()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        return [norm, *(parameter.grad for parameter in parameters if parameter.grad is not None)]

    found = verdict(clipped, clipped, [normal(count), normal(count)], device)
    assert found.verdict in ("pass", "warning"), found.reason


# The norm of 2,400,000 normal numbers is too small by 4.14e-5 where the CPU's kernel adds them up.
NEAR_THE_LOSS = (1 - 1e-4, 1 - 4e-5, 1 + 4.14e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("count", "factor"),
    [
        *((MILLION, factor) for factor in (1 - 1e-2, 1 - 3e-3, *NEAR_THE_LOSS, 1 + 1e-4, 1 + 3e-3)),
        *((2_400_000, factor) for factor in NEAR_THE_LOSS),
    ],
)
@pytest.mark.parametrize("api", ["", "Torch.linalg.vector_norm"])
def test_what_the_cpus_norm_loses_excuses_no_other_error(api: str, count: int, factor: float, device: str) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:
            return vector_norm(x)
        return (vector_norm(x.double()) * factor).float()

    assert verdict(scaled, vector_norm, [normal(count)], device, api).verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
def test_a_norm_without_its_tail_is_an_error(device: str) -> None:
    def cut(x: torch.Tensor) -> torch.Tensor:
        return vector_norm(x if x.dtype is torch.float64 else x[:-300])

    assert verdict(cut, vector_norm, [normal(4_000_000)], device).verdict == "error"


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_that_is_a_sum_in_turn_is_a_warning_and_a_lost_row_an_error(device: str) -> None:
    class Added(torch.autograd.Function):
        """x + bias, whose bias gets its gradient row by row."""

        rows = 3000

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            return x + bias

        @classmethod
        def backward(cls, ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return gradient, torch.from_numpy(in_turn(gradient.numpy()[: cls.rows]))

    def function(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return Added.apply(x, bias).sum() * 0.3

    def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (x + bias).sum() * 0.3

    def worst() -> str:
        registry = Registry.default()
        registry.devices["other"] = Emulated
        checker = Checker(RunRequest(device=device, allow=("none",)), registry)
        found = checker.compare(function, reference, [normal(3000, 1), normal(1)], key="sums", backward=True)
        return max((verdict.verdict for verdict in found), key=["pass", "warning", "error"].index)

    assert worst() == "warning"
    Added.rows = 2999
    assert worst() == "error"
