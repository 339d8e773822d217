"""What perturbed inputs excuse, and exact ones do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.fuzzing.running import checker, search, trials
from pytest_probe.features.fuzz.trial import exact_elements
from pytest_probe.model.dump import Call, Surroundings, TensorSpec
from pytest_probe.model.run import Arguments, Leaf


def naive_reduction(input: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.fmod(input, 6.2831855))


def by_logarithm(input: torch.Tensor, exponent: float) -> torch.Tensor:
    return torch.where(input > 0, torch.exp(exponent * torch.log(input)), torch.pow(input, exponent))


def reason(api: str, kernel: Callable[..., torch.Tensor], numbers: list[float], *rest: int) -> str:
    """Why a kernel's call on these numbers fails; "" where it does not."""
    array = np.array(numbers, np.float32)
    call = Call((TensorSpec("float32", array.shape), *rest), {}, None, (), surroundings=Surroundings())
    judging = trials(checker(api, kernel), api, ("forward",))
    failing = judging.judged(call, Arguments((Leaf(array), *rest), {}, ())).failing
    return failing.verdict.reason if failing is not None else ""


@pytest.mark.parametrize(
    ("api", "kernel", "rest"), [("Torch.sin", naive_reduction, ()), ("Torch.pow", by_logarithm, (7,))]
)
def test_what_noise_cannot_see_is_seen_by_ulp(
    api: str, kernel: Callable[..., torch.Tensor], rest: tuple[int, ...]
) -> None:
    found = reason(api, kernel, [355.0, 710.0, 1000.0, 0.3], *rest)
    assert "on inputs that are exact" in found
    assert not reason(api, kernel, [355.1, 710.1, 1000.1, 0.3], *rest)


@pytest.mark.parametrize(("api", "kernel"), [("Torch.sin", naive_reduction), ("Torch.pow", by_logarithm)])
def test_a_search_finds_it(api: str, kernel: Callable[..., torch.Tensor]) -> None:
    assert search(checker(api, kernel), api, "float32", 200, 1, ("forward",)).failed is not None


def test_whole_numbers_and_halves_are_exact() -> None:
    numbers = np.array([[1.0, 3.0, -0.5], [0.25, np.nan, np.inf]], np.float32)
    leaves = {"input.0": Leaf(numbers), "input.1": Leaf(np.array([7])), "input.2": Leaf(np.array([2.0, 0.1, 0.0]))}
    assert exact_elements(leaves, (2, 3)).tolist() == [[True, False, True], [False, False, False]]
    # A tensor that does not broadcast counts as a whole: an `out` that is resized.
    for out, exact in ((np.zeros(0, np.float32), [True, False, True]), (np.full((2, 3), 0.1, np.float32), [False] * 3)):
        leaves = {"input.0": Leaf(np.array([[1.0, 0.1, -0.5]], np.float32)), "kwargs.out": Leaf(out)}
        assert exact_elements(leaves, (1, 3)).tolist() == [exact]


def test_a_function_of_16_bit_sees_every_number() -> None:
    def wrong_once(input: torch.Tensor) -> torch.Tensor:
        return torch.where(input == 1.8046875, input, torch.exp(input))

    found = search(checker("Torch.exp", wrong_once), "Torch.exp", "bfloat16", 5, 1, ("forward",))
    assert found.failed is not None
    assert found.found_after == 1
