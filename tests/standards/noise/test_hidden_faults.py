"""Edges that inputs meet exactly: what a device may not cross, and what it may."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.noise.hidden_faults import unstable
from pytest_probe.standards.noise.standard import NoiseStandard
from tests.support import asking
from tests.support.comparing import compared, outcomes

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(params=["cpu", "other"])
def compare(request: pytest.FixtureRequest) -> Callable[..., tuple[Verdict, ...]]:
    return partial(compared, device=request.param, allow="none")


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def met(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of which every 50th is 0.5."""
    values = numbers(dtype, 4000)
    values[::50] = 0.5
    return values


def above(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0.5, x * 3, -x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_device_that_takes_the_edge_itself_is_wrong(
    compare: Callable[..., tuple[Verdict, ...]], dtype: torch.dtype
) -> None:
    (found,) = compare(lambda x: torch.where(x >= 0.5, x * 3, -x), above, [met(dtype)])
    assert found.verdict == "error"
    assert re.search(r"8\d of 4,000 elements are on the wrong side of an edge that an input", found.reason)
    assert compare(lambda x: above(x.double()).to(x.dtype), above, [met(dtype)])[0].verdict == "pass"


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_may_lead_across_an_edge(compare: Callable[..., tuple[Verdict, ...]], dtype: torch.dtype) -> None:
    """0.7 x / 0.7 is x again, or its neighbour."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return above(x * 0.7 / 0.7)

    def up(x: torch.Tensor) -> torch.Tensor:
        scaled = x.float() * 0.7 / 0.7 * (1 + 2**-23)
        return torch.where(scaled > 0.5, x.float() * 3, -x.float()).to(x.dtype)

    assert compare(up, scaled, [met(dtype)])[0].verdict == "pass"


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_of_equal_values_may_be_chosen(compare: Callable[..., tuple[Verdict, ...]], dtype: torch.dtype) -> None:
    """The gradient of the largest, where several are equal: the first of them has it, or the last."""
    values = numbers(dtype, 40, 100).round()

    def first(x: torch.Tensor) -> torch.Tensor:
        return (x * torch.zeros_like(x).scatter(-1, x.argmax(-1, keepdim=True), 1)).cumsum(-1)

    def last(x: torch.Tensor) -> torch.Tensor:
        place = x.shape[-1] - 1 - x.flip(-1).argmax(-1, keepdim=True)
        return (x * torch.zeros_like(x).scatter(-1, place, 1)).cumsum(-1)

    assert compare(last, first, [values])[0].verdict != "error"


class Whole(torch.autograd.Function):
    """The largest of each row, and a gradient for each of the equals."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        largest = x.amax(-1, keepdim=True)
        ctx.save_for_backward(x == largest)
        return largest[..., 0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (equal,) = ctx.saved_tensors
        return gradient[..., None] * equal


class First(Whole):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (equal,) = ctx.saved_tensors
        return gradient[..., None] * (equal & (equal.cumsum(-1) == 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_share_one_gradient(compare: Callable[..., tuple[Verdict, ...]], dtype: torch.dtype) -> None:
    values = (numbers(dtype, 40, 100) * 2).round()
    found = compare(Whole.apply, lambda x: x.amax(-1), [values], backward=True)
    assert found[0].verdict == "pass"
    assert found[1].verdict == "error"
    assert "of 40 sums differ, although the choice among equal values does not change them" in found[1].reason
    assert compare(First.apply, lambda x: x.amax(-1), [values], backward=True)[1].verdict == "pass"


@pytest.mark.parametrize("seed", [46, 96])
def test_gradients_that_cancel_are_no_choice(seed: int) -> None:
    """Steps in float32 move them by as much as they are, and their sums by less; perturbed inputs move neither."""

    def attention(x: torch.Tensor, weight: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ weight @ keys.T, -1) @ keys

    torch.manual_seed(seed)
    tensors = (torch.randn(3, 2) * 4, torch.randn(2, 2) * 2, torch.randn(4, 2) * 3)
    assert outcomes(attention, attention, tensors, allow="none", backward=True, key=str(seed)) == ["pass", "pass"]


comparison = partial(asking.comparison, api="Torch.std")
ONES = np.ones(100)
STEP = 2.0**-20
FIRST = (np.arange(100) == 0) * 1.0


def runs(jump: float) -> dict[str, list[AnyArray]]:
    """All elements move by a step, and by a 16th of it with inputs that move a 16th as far; the first jumps."""
    return {"perturbed": [ONES + STEP + jump * FIRST] * 4, "perturbed_less": [ONES + STEP / 16 + jump * FIRST] * 4}


def judge(actual: Any, jump: float) -> OutputVerdict:
    return NoiseStandard().judge(comparison(actual, ONES, dtype="float32", runs=runs(jump)))


@pytest.mark.parametrize(
    ("moved", "less", "jumping"),
    [
        (STEP, STEP / 16, False),
        (STEP, STEP / 256, False),
        (STEP, STEP / 4, False),
        (STEP, STEP / 3, True),
        (STEP, 0.0, True),
        (0.0, STEP, True),
        (0.0, 0.0, False),
    ],
)
def test_what_does_not_shrink_with_the_inputs_is_unstable(moved: float, less: float, jumping: bool) -> None:
    made = {"perturbed": [ONES + moved * FIRST] * 4, "perturbed_less": [ONES + less * FIRST] * 4}
    asked = comparison(ONES, ONES, dtype="float32", runs=made)
    found = unstable(asked, Spread.of(moved * FIRST))
    assert found is not None
    assert found.tolist() == [jumping] + [False] * 99


def test_other_runs_may_jump_where_these_do_not() -> None:
    asked = comparison(ONES, ONES, dtype="float32", runs=runs(0.0))
    place = np.arange(100) == 7
    for size, jumping in ((0.011, [7]), (0.009, [])):
        found = unstable(asked, Spread.of(np.where(place, size, STEP)))
        assert found is not None
        assert np.flatnonzero(found).tolist() == jumping
    everywhere = unstable(asked, Spread.of(np.full(100, 0.011)))
    assert everywhere is not None
    assert not everywhere.any()


def test_runs_that_cannot_be_made_do_not_tell() -> None:
    asked = comparison(ONES, ONES, dtype="float32", runs={"perturbed": [ONES]})
    assert unstable(asked, Spread.of(FIRST)) is None


def test_sums_of_products_choose_nothing() -> None:
    """Their elements move in proportion to each factor, so no run is made to see whether they jump."""
    made = runs(1.0)
    told = {
        api: asking.comparison(ONES, ONES, api=api, dtype="float32", runs=made)
        for api in ("Torch.matmul", "Torch.sort")
    }
    assert unstable(told["Torch.matmul"], Spread.of(FIRST)) is None
    assert unstable(told["Torch.sort"], Spread.of(FIRST)) is not None


def test_one_element_that_jumps_grants_the_others_nothing() -> None:
    assert judge(ONES * 1.01, jump=0.0).verdict == "error"
    found = judge(ONES * 1.01, jump=1.0)
    assert found.verdict == "error"
    assert found.reason == (
        "1 of 100 elements are unstable: they change abruptly when inputs change by a roundoff; of all elements 99 are "
        "above the limit: noise ratio 1.049e+04 (limit 64), RMS noise ratio 1.043e+04 (limit 13.6)"
    )


def test_no_more_that_err_than_jump_are_undecided() -> None:
    off = ONES + 0.5 * (np.arange(100) == 3)
    found = judge(off, jump=1.0)
    assert found.verdict == "warning"
    assert found.reason.startswith("undecided: 1 of 100 elements are unstable: they change abruptly when ")
    assert "; noise ratio " in found.reason
    assert judge(ONES + 0.5 * FIRST, jump=1.0).verdict == "pass"


@pytest.mark.parametrize(("dtype", "on_cpu"), [("bfloat16", True), ("bfloat16", False), ("float32", False)])
def test_a_jump_elsewhere_excuses_no_error_of_all(dtype: str, on_cpu: bool) -> None:
    asked = comparison(ONES + 2.0**-7, ONES, dtype=dtype, runs=runs(1.0), on_cpu=on_cpu)
    assert NoiseStandard().judge(asked).verdict == "error"
