"""Sums in float32, one term after another: a warning that says so, where nothing else is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import Struct

from pytest_probe.model.verdict import Verdict
from tests.support.comparing import compared

Tensor = torch.Tensor
Array = np.ndarray
Totals = Callable[[Array], Array]


class Case(Struct, frozen=True):
    """A function that adds up terms: of which terms [n, ...] its arguments make, what it makes of their sums, and the
    reference."""

    terms: Callable[..., Tensor]
    result: Callable[[Tensor], Tensor]
    reference: Callable[..., Tensor]
    inputs: Callable[[], list[Tensor]]

    def adding(self, totals: Totals) -> Callable[..., Tensor]:
        """The function with sums of its own in float32; the reference in float64."""

        def function(*arguments: Tensor) -> Tensor:
            if arguments[0].dtype is torch.float64:
                return self.reference(*arguments)
            return self.result(torch.from_numpy(np.asarray(totals(self.terms(*arguments).numpy()))))

        return function


def in_turn(terms: Array) -> Array:
    """float32, one after another."""
    return np.asarray(np.add.accumulate(terms, axis=0)[-1])


def lost(terms: Array) -> Array:
    terms[7] = 0
    return in_turn(terms)


def twice(terms: Array) -> Array:
    terms[7] *= 2
    return in_turn(terms)


def tail(terms: Array) -> Array:
    terms[-len(terms) // 64 :] = 0
    return in_turn(terms)


def in_float16(terms: Array) -> Array:
    return np.asarray(np.add.accumulate(terms.astype(np.float16), axis=0)[-1].astype(np.float32))


def scaled(terms: Array) -> Array:
    """Farther off, to the same side."""
    found = in_turn(terms)
    below = found < terms.astype(np.float64).sum(axis=0)
    return np.asarray(found * np.where(below, 1 - 4e-5, 1 + 4e-5), np.float32)


def mirrored(terms: Array) -> Array:
    """As far off, to the other side."""
    right = terms.astype(np.float64).sum(axis=0)
    return np.asarray((2 * right - in_turn(terms)).astype(np.float32))


FAULTS: dict[str, Totals] = {
    "a term lost": lost,
    "a term twice": twice,
    "a tail of zeros": tail,
    "float16 accumulation": in_float16,
    "a factor": scaled,
    "the other sign": mirrored,
}


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def equal(*shape: int) -> Tensor:
    return torch.full(shape, 0.1)


def same(x: Tensor) -> Tensor:
    return x


def copied(x: Tensor) -> Tensor:
    return x.clone()


CASES: dict[str, Case] = {
    "sum of equal numbers": Case(copied, same, torch.sum, lambda: [equal(2048)]),
    "norm of equal numbers": Case(
        torch.square, torch.sqrt, torch.linalg.vector_norm, lambda: [torch.full((5000,), 0.9)]
    ),
    "sums of columns": Case(copied, same, lambda x: x.sum(0), lambda: [equal(2500, 6) * torch.arange(1, 7)]),
    "product of matrices": Case(
        lambda a, b: a.t()[:, :, None] * b[:, None, :],
        same,
        torch.matmul,
        lambda: [equal(3, 4000), equal(4000, 5) * torch.arange(1, 6)],
    ),
    "logarithm of a sum": Case(
        torch.exp, torch.log, lambda x: x.exp().sum(0).log(), lambda: [torch.full((6000, 3), -7.3)]
    ),
}


pytestmark = pytest.mark.usefixtures("no_causes")

DEVICES = ("cpu", "other")
MILLION = 1_000_000
vector_norm = torch.linalg.vector_norm
Function = Callable[..., Any]


def verdict(function: Function, reference: Function, inputs: Any, device: str, api: str = "") -> Verdict:
    [found] = compared(function, reference, inputs, device=device, allow="none", api=api, key="sums")
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_a_sum_in_turn_is_a_warning_that_names_the_number_of_terms(name: str, device: str) -> None:
    case = CASES[name]
    found = verdict(case.adding(in_turn), case.reference, case.inputs(), device)
    assert found.verdict == "warning"
    assert "terms one after another in float32" in found.reason
    assert "a pairwise sum by" in found.reason


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_another_error_is_no_sum_in_turn(name: str, fault: str, device: str) -> None:
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
        how: Any = {"device": device, "allow": "none", "key": "sums", "backward": True}
        found = compared(function, reference, [normal(3000, 1), normal(1)], **how)
        return max((verdict.verdict for verdict in found), key=["pass", "warning", "error"].index)

    assert worst() == "warning"
    Added.rows = 2999
    assert worst() == "error"
