"""References of float32 tensors that cast to 16 bit inside: what rounds as they do is no error, what leaves that out is
a warning, and what is wrong does not pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.model.verdict import Verdict
from tests.support.comparing import compared

pytestmark = pytest.mark.usefixtures("no_causes")
Tensor = torch.Tensor
Cast = Callable[[Tensor], Tensor]


def linear(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return (to(x) @ to(w).T).float()


def through(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return to(x).float()


def narrow_sum(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return to(x) + to(torch.full_like(x, 0.5))


def square(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    y = to(300 * x)
    return (y * y).float()


def softmax(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(to(x), -1).float()


def gate(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return F.silu(to(x)).float() * x.tanh()


def mlp(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return (to(F.gelu((to(x) @ to(w).T).float())) @ to(w)).float()


def attention(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    scores = (to(x) @ to(w).T).float() / 8
    return (to(torch.softmax(scores, -1)) @ to(w)).float()


def norm(to: Cast, x: Tensor, w: Tensor) -> Tensor:
    return to(F.layer_norm(x, (64,), w[0])).float() + 1


FORMULAS = (linear, through, narrow_sum, square, softmax, gate, mlp, attention, norm)
PLACES = pytest.mark.parametrize(("dtype", "device"), [("float16", "cpu"), ("float16", "npu"), ("bfloat16", "npu")])


def half(x: Tensor) -> Tensor:
    return x.to(torch.float16)


def brain(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


def exact(x: Tensor) -> Tensor:
    return x


CASTS = {"float16": half, "bfloat16": brain}


def judged(
    formula: Any, function: Callable[[Tensor, Tensor], Tensor], dtype: str, device: str, *, backward: bool = False
) -> tuple[Verdict, ...]:
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(rows, 64, generator=generator) for rows in (16, 32)]
    how: Any = {"device": device, "backward": backward, "dtype": False}
    return compared(function, lambda x, w: formula(CASTS[dtype], x, w), given, **how)


@PLACES
@pytest.mark.parametrize("formula", FORMULAS)
def test_it_passes_beside_itself(formula: Any, dtype: str, device: str) -> None:
    found = judged(formula, lambda x, w: formula(CASTS[dtype], x, w), dtype, device, backward=formula is not square)
    assert [verdict.reason for verdict in found if verdict.verdict != "pass"] == []


@PLACES
@pytest.mark.parametrize("formula", [formula for formula in FORMULAS if formula is not square])
def test_rounding_in_fewer_places_is_no_error(formula: Any, dtype: str, device: str) -> None:
    def rounded(x: Tensor, w: Tensor) -> Tensor:
        found = formula(lambda y: CASTS[dtype](y).double(), x.double(), w.double())
        return found.to(CASTS[dtype](x).dtype if formula is narrow_sum else torch.float32)

    (found,) = judged(formula, rounded, dtype, device)
    assert found.verdict in ("pass", "warning"), found.reason


@PLACES
@pytest.mark.parametrize("formula", [linear, mlp, attention])
def test_another_order_of_sums_passes(formula: Any, dtype: str, device: str) -> None:
    def reordered(x: Tensor, w: Tensor) -> Tensor:
        if formula is linear:
            return linear(CASTS[dtype], x.flip(1), w.flip(1))
        result: Tensor = formula(CASTS[dtype], x, w.flip(0))
        return result

    (found,) = judged(formula, reordered, dtype, device)
    assert found.verdict == "pass", found.reason


@PLACES
@pytest.mark.parametrize("formula", FORMULAS)
def test_rounding_that_is_left_out_is_a_warning(formula: Any, dtype: str, device: str) -> None:
    def plain(x: Tensor, w: Tensor) -> Tensor:
        found = formula(exact, x, w)
        return CASTS[dtype](found) if formula is narrow_sum else found

    (found,) = judged(formula, plain, dtype, device)
    assert found.verdict == "warning"
    assert f"leaves out the rounding to {dtype} at test_rounding_references.py:" in found.reason


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_arguments_of_float64_that_are_cast_to_float32(device: str) -> None:
    x = torch.randn(16, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def single(x: Tensor) -> Tensor:
        return (x.float() * 1.5).sin().double()

    (same,) = compared(single, single, (x,), device=device)
    (wider,) = compared(lambda x: (x * 1.5).sin(), single, (x,), device=device)
    (wrong,) = compared(lambda x: single(x) * 1.00001, single, (x,), device=device)
    assert (same.verdict, wrong.verdict) == ("pass", "error")
    assert wider.reason.startswith("output.0: leaves out the rounding to float32 at test_rounding_references.py:")


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_a_cast_that_rounds_nothing_may_be_left_out(device: str) -> None:
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    (found,) = compared(
        lambda x: (x > 0).float() * x, lambda x: (x > 0).to(torch.float16).float() * x, (x,), device=device
    )
    (whole,) = compared(lambda x: 2 * x, lambda x: (2 * x.half()).float(), (x.round(),), device=device)
    assert (found.verdict, found.reason, whole.verdict, whole.reason) == ("pass", "", "pass", "")


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_an_api_that_is_judged_bit_by_bit(device: str) -> None:
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))

    def relu(x: Tensor) -> Tensor:
        return torch.relu(x.half()).float()

    found = [
        compared(function, relu, (x,), device=device, api="Functional.relu")[0].verdict
        for function in (relu, torch.relu, lambda x: relu(x) * 1.01)
    ]
    assert found == ["pass", "warning", "error"]


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_an_overflow_of_the_reference_is_none_that_the_function_must_leave_out(device: str) -> None:
    def square(x: Tensor) -> Tensor:
        return (x.half() * x.half()).float()

    x = torch.tensor([5000.0, 3.0, 700.0, 0.1])
    (same,) = compared(square, square, (x,), device=device)
    (without,) = compared(lambda x: x * x, square, (x,), device=device)
    (other,) = compared(lambda x: -square(x), square, (x,), device=device)
    assert (same.verdict, without.verdict, other.verdict) == ("pass", "warning", "error")


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled": lambda y: y * 1.03,
    "slightly scaled": lambda y: y * 1.001,
    "shifted": lambda y: y + y.float().std() * 0.02,
    "an element": lambda y: torch.where(torch.arange(y.numel()).reshape(y.shape) == 77, y + y.std() / 5, y),
    "a row": lambda y: torch.cat([y[:3], y[3:4] * 0, y[4:]]),
    "swapped": lambda y: torch.cat([y[1:2], y[:1], y[2:]]),
}


@pytest.mark.parametrize(("rounds", "device"), [("as written", "npu"), ("as written", "cpu"), ("not", "cpu")])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("formula", [linear, narrow_sum, softmax, mlp])
def test_it_hides_no_fault(formula: Any, fault: str, rounds: str, device: str) -> None:
    cast = half if rounds == "as written" else exact

    def wrong(x: Tensor, w: Tensor) -> Tensor:
        found = formula(cast, x, w)
        return FAULTS[fault](found.float()).to(torch.float16 if formula is narrow_sum else torch.float32)

    (found,) = judged(formula, wrong, "float16", device)
    # As small as the rounding itself, it is said.
    assert found.verdict in (("error", "warning") if fault == "slightly scaled" else ("error",)), found.reason
