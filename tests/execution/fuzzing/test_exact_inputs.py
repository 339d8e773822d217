"""What perturbed inputs excuse, and exact ones do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.fuzzing.running import checker, search
from pytest_probe.core.arguments import Leaf
from pytest_probe.execution.fuzzing.exact_inputs import are_exact


def naive_reduction(input: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.remainder(input, 6.2831855))


def by_logarithm(input: torch.Tensor, exponent: float) -> torch.Tensor:
    return torch.where(input > 0, torch.exp(exponent * torch.log(input)), torch.pow(input, exponent))


@pytest.mark.parametrize(("api", "kernel"), [("Torch.sin", naive_reduction), ("Torch.pow", by_logarithm)])
def test_what_noise_cannot_see_is_found_by_ulp(api: str, kernel: Callable[..., torch.Tensor]) -> None:
    found = search(checker(api, kernel), api, "float32", 200, 1, ("forward",))
    assert found.failed is not None
    failing = found.failed[1].failing
    assert failing is not None
    assert "on inputs that are exact" in failing.verdict.reason


@pytest.mark.parametrize("api", ["Torch.sin", "Torch.pow"])
def test_kernels_that_are_right_pass_by_ulp(api: str) -> None:
    assert search(checker(), api, "float32", 100, 1, ("forward",)).failed is None


@pytest.mark.parametrize(("value", "exact"), [(3.0, True), (-0.5, True), (0.25, False), (np.nan, False)])
def test_whole_numbers_and_halves_are_exact(value: float, exact: bool) -> None:
    leaves = {"input.0": Leaf(np.array([1.0, value], np.float32)), "input.1": Leaf(np.array([7]))}
    assert are_exact(leaves) is exact


def test_a_function_of_16_bit_sees_every_number() -> None:
    def wrong_once(input: torch.Tensor) -> torch.Tensor:
        return torch.where(input == 1.8046875, input, torch.exp(input))

    found = search(checker("Torch.exp", wrong_once), "Torch.exp", "bfloat16", 5, 1, ("forward",))
    assert found.failed is not None
    assert found.found_after == 1
