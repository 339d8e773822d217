from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.execution import Checker, Conditions
from pytest_probe.registry import Registry
from pytest_probe.standards.verdict import Verdict
from tests.replaying import FRAMEWORK

Function = Callable[..., Any]
X = torch.relu(torch.randn((2, 3, 8, 8), generator=torch.Generator().manual_seed(0)))


def compare(function: Function, reference: Function, *args: Any, api: str, **kwargs: Any) -> tuple[Verdict, ...]:
    checker = Checker(Conditions(device="cpu"), Registry.default())
    return checker.compare(function, reference, args, kwargs, api=api, backward=True)


def in_halves(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 2)


def chosen_last(x: torch.Tensor, *window: int) -> torch.Tensor:
    """The last of equal values has the gradient, not the first."""
    return F.max_pool2d(x.flip(-1, -2), *window or (2,)).flip(-1, -2)


def test_a_choice_among_equals_needs_the_window() -> None:
    """Without it a rule of the API has nothing to go by, and noise decides, as for a function of no name."""
    api = "Functional.max_pool2d"
    assert [found.verdict for found in compare(in_halves, in_halves, X, api=api)] == ["pass", "pass"]
    assert [found.verdict for found in compare(chosen_last, F.max_pool2d, X, 2, api=api)] == ["pass", "pass"]
    forward, backward = compare(chosen_last, in_halves, X, api=api)
    assert (forward.verdict, backward.verdict) == ("pass", "error")
    assert "judged by noise: torch.nn.functional.max_pool2d does not take these arguments: " in backward.reason


def test_a_reference_of_ones_own_may_take_the_arguments_of_the_api() -> None:
    api, own = "Functional.max_pool2d", functools.partial(F.max_pool2d)
    assert [found.verdict for found in compare(chosen_last, own, X, 2, api=api)] == ["pass", "pass"]


def test_what_an_argument_means_shows_in_the_values() -> None:
    """interpolate copies by default: what mode is, no argument says here."""

    def smooth(x: torch.Tensor, size: int) -> torch.Tensor:
        return F.interpolate(x, size, mode="bilinear")

    def off(x: torch.Tensor, size: int) -> torch.Tensor:
        return smooth(x, size) * (1.0 if x.dtype is torch.float64 else 1.001)

    api = "Functional.interpolate"
    assert [found.verdict for found in compare(smooth, smooth, X, 11, api=api)] == ["pass", "pass"]
    forward, backward = compare(off, smooth, X, 11, api=api)
    assert (forward.verdict, backward.verdict) == ("error", "error")
    assert "torch.nn.functional.interpolate gives other values for these arguments" in forward.reason


def test_random_values_are_told_by_the_same_random_numbers() -> None:
    api = "Functional.dropout"
    given, fixed = (lambda x, p: F.dropout(x, p)), (lambda x, p: F.dropout(x, 0.2))
    assert [found.verdict for found in compare(given, given, X + 1, 0.4, api=api)] == ["pass", "pass"]
    for found in compare(fixed, fixed, X + 1, 0.4, api=api):
        assert (found.verdict, found.kind) == ("skip", "another function's arguments")


def test_drawing_alike_leaves_the_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    draw = FRAMEWORK.seeded(torch.rand)
    assert torch.equal(draw(3), draw(3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("api", ["max_pool2d", "Mine.max_pool2d", "Functional.no_such_pool"])
def test_a_name_that_leads_to_no_api(api: str) -> None:
    assert [found.verdict for found in compare(in_halves, in_halves, X, api=api)] == ["pass", "pass"]


def test_what_is_written_counts() -> None:
    """Two functions that return nothing and write differently are not the same."""

    def put(x: torch.Tensor, index: torch.Tensor, value: float) -> None:
        x[index] = value + 1

    def off(x: torch.Tensor, index: torch.Tensor, value: float) -> None:
        x[index] = value + (1 if x.dtype is torch.float64 else 2)

    checker = Checker(Conditions(device="cpu"), Registry.default())
    (found,) = checker.compare(off, put, [X, torch.tensor([0, 0]), 3.0], api="Tensor.__setitem__")
    assert found.verdict == "error"
    assert "torch.Tensor.__setitem__ gives other values for these arguments" in found.reason
