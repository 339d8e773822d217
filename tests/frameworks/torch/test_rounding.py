from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.frameworks.torch.calls import CALLS
from pytest_probe.frameworks.torch.rounding import StepsMode
from pytest_probe.model.run import Arguments, Kernel, Leaf, Steps, Wanted, Way
from pytest_probe.numerics.dtypes import AnyArray

X = torch.linspace(0.1, 3.0, 20, dtype=torch.float64)
Function = Callable[..., torch.Tensor]


def rounded(tensor: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return tensor.to(dtype).to(torch.float64)


def under(
    function: Function, *args: Any, fine: bool = False, dtype: torch.dtype = torch.bfloat16, overflows: bool = False
) -> torch.Tensor:
    with StepsMode(dtype, fine, overflows=overflows):
        return function(*args)


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.equal(found, wanted)


def test_a_single_kernel_is_not_rounded() -> None:
    assert same(under(torch.exp, X), torch.exp(X))
    assert same(under(torch.softmax, X, 0), torch.softmax(X, 0))


def test_arguments_are_not_rounded() -> None:
    before = X.clone()
    assert same(under(lambda x: x * x, X), before * before)
    assert same(X, before)


def test_what_passes_between_kernels_is_rounded_and_the_last_is_not() -> None:
    assert same(under(lambda x: torch.exp(x) * x, X), rounded(torch.exp(X)) * X)
    assert same(under(lambda x: torch.sin(torch.exp(x) * x), X), torch.sin(rounded(rounded(torch.exp(X)) * X)))


def beside(kernels: list[Kernel], function: Function) -> torch.Tensor:
    with StepsMode(torch.bfloat16, fine=False, kernels=kernels):
        return function(X)


def test_what_the_call_computes_in_float32_is_not_rounded() -> None:
    found = beside(
        [("aten.exp.default", True, True), ("aten.mul.Tensor", False, False)], lambda x: torch.sin(torch.exp(x) * x)
    )
    assert same(found, torch.sin(rounded(torch.exp(X) * X)))


def test_what_a_kernel_of_16_bit_takes_was_cast() -> None:
    """And remains float32 for the next one that computes in it."""

    def function(x: torch.Tensor) -> torch.Tensor:
        made, constants = torch.exp(x), torch.tensor([0.1, 0.7, 0.9], dtype=torch.float64)[: x.shape[0]]
        return torch.stack([x * made, x * constants, made * made])

    narrow, wide = ("aten.mul.Tensor", False, True), ("aten.mul.Tensor", True, False)
    x, constants = X[:3], torch.tensor([0.1, 0.7, 0.9], dtype=torch.float64)
    with StepsMode(torch.bfloat16, fine=False, kernels=[("aten.exp.default", True, False), narrow, narrow, wide]):
        found = function(x)
    made = torch.exp(x)
    assert same(found, torch.stack([x * rounded(made), x * rounded(constants), made * made]))


def test_kernels_that_do_not_run_side_by_side_are_rounded() -> None:
    found = beside([("aten.exp2.default", True, True), ("aten.exp.default", True, True)], lambda x: torch.exp(x) * x)
    assert same(found, rounded(torch.exp(X)) * X)


def test_guessed_steps_do_not_overflow() -> None:
    large = torch.tensor([300.0, 200.0], dtype=torch.float64)
    found = under(lambda x: x * x / 2, large, fine=True, dtype=torch.float16)
    assert same(found, torch.tensor([45000.0, 20000.0], dtype=torch.float64))
    found = under(lambda x: x * x / 2, large, fine=True, dtype=torch.float16, overflows=True)
    assert same(found, torch.tensor([torch.inf, 20000.0], dtype=torch.float64))
    found = under(lambda x: x * x / 2, large, dtype=torch.float16)
    assert same(found, torch.tensor([torch.inf, 20000.0], dtype=torch.float64))


def test_the_dtype_is_that_of_the_steps() -> None:
    with StepsMode(torch.float32, fine=False):
        found = torch.exp(X) * X
    assert same(found, rounded(torch.exp(X), torch.float32) * X)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.view(4, 5).t(),
        lambda x: x[3:7],
        lambda x: x.clone(),
        lambda x: torch.cat([x, x]),
        lambda x: torch.stack([x, x]),
        lambda x: x.flip(0),
        lambda x: torch.nn.functional.pad(x, (1, 1)),
        lambda x: x.repeat(2),
    ],
)
def test_moving_values_about_rounds_nothing(move: Function) -> None:
    assert same(under(lambda x: move(torch.exp(x)), X), move(torch.exp(X)))


@pytest.mark.parametrize("choice", [lambda x: x.amax(0, keepdim=True), lambda x: x.sort()[0]])
def test_what_is_chosen_of_an_argument_stays_what_it_was(choice: Function) -> None:
    assert same(under(lambda x: choice(x) - x, X), choice(X) - X)
    chosen = choice(rounded(torch.exp(X)))
    assert same(under(lambda x: choice(torch.exp(x)) - 1, X), chosen - 1)


def test_a_view_is_rounded_with_what_it_shows() -> None:
    assert same(under(lambda x: torch.exp(x).view(4, 5) * 3, X), rounded(torch.exp(X)).view(4, 5) * 3)


def test_an_output_that_was_read_is_rounded() -> None:
    def two(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        y.sum()
        return y

    assert same(under(two, X), rounded(torch.exp(X)))


def test_in_place_results_are_rounded_when_they_are_read() -> None:
    assert same(under(lambda x: torch.exp(x).mul_(3), X), rounded(torch.exp(X)) * 3)
    assert same(under(lambda x: torch.exp(x).mul_(3) + 1, X), rounded(rounded(torch.exp(X)) * 3) + 1)


def test_parts_that_are_written_one_after_the_other_are_all_rounded() -> None:
    def filled(x: torch.Tensor) -> torch.Tensor:
        made = torch.exp(x)
        made[:5].copy_(torch.sin(x[:5]))
        made[5:10].copy_(torch.cos(x[5:10]))
        return made * 3

    wanted = torch.cat([torch.sin(X[:5]), torch.cos(X[5:10]), torch.exp(X[10:])])
    assert same(under(filled, X), rounded(wanted) * 3)


def test_complex_values_are_rounded_by_their_parts() -> None:
    z = torch.complex(X, X.flip(0))
    y = torch.exp(z)
    found = under(lambda z: torch.exp(z) * 2, z)
    assert same(torch.view_as_real(found), torch.view_as_real(torch.complex(rounded(y.real), rounded(y.imag)) * 2))


def test_integers_and_conditions_stay() -> None:
    found = under(lambda x: torch.where(torch.exp(x) > 1.5, x, x - 1), X)
    assert same(found, torch.where(rounded(torch.exp(X)) > 1.5, X, X - 1))
    assert under(lambda x: torch.argsort(x) + 1, X).tolist() == list(range(1, 21))


# Fine: kernels by torch's own decompositions


def test_fine_steps_split_kernels() -> None:
    coarse, fine = under(torch.softmax, X, 0), under(torch.softmax, X, 0, fine=True)
    assert same(coarse, torch.softmax(X, 0))
    shifted = rounded(X - X.max())
    powers = rounded(torch.exp(shifted))
    assert same(fine, powers / rounded(powers.sum()))


def test_a_kernel_without_a_decomposition_stays_whole() -> None:
    assert same(under(torch.exp, X, fine=True), torch.exp(X))
    a = torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4)
    assert same(under(torch.mm, a, a, fine=True), torch.mm(a, a))


# A whole run, backward included


def gradient(function: Any, steps: Steps | None) -> AnyArray:
    way = Way(dtype="float64", steps=steps)
    made = CALLS.run(function, Arguments((Leaf(X.numpy()),), {}, None), way, Wanted(frozenset({"input.0"})))
    return CALLS.gradients(made, {"output.0": np.ones(20)})["input.0"]


def test_what_the_backward_reads_of_the_forward_is_rounded() -> None:
    """The gradient of exp is its own output."""
    assert same(torch.from_numpy(gradient(torch.exp, None)), torch.exp(X))
    assert same(torch.from_numpy(gradient(torch.exp, Steps("bfloat16", fine=False))), rounded(torch.exp(X)))


def test_rounding_does_not_upset_autograd() -> None:
    found = gradient(lambda x: torch.tanh(torch.exp(x)) * x, Steps("bfloat16", fine=True))
    assert np.allclose(found, gradient(lambda x: torch.tanh(torch.exp(x)) * x, None), rtol=0.1)
    assert not np.array_equal(found, gradient(lambda x: torch.tanh(torch.exp(x)) * x, None))


def test_memory_that_was_freed_is_not_mistaken_for_another_tensors() -> None:
    def many(x: torch.Tensor) -> torch.Tensor:
        total = x
        for step in range(50):
            torch.exp(x + step)
            total = total + 1
        return total

    wanted = X
    for _ in range(50):
        wanted = rounded(wanted) + 1 if wanted is not X else wanted + 1
    assert same(under(many, X), wanted)


def test_fine_steps_leave_a_librarys_functions_an_ulp() -> None:
    """Equal numbers are off alike, as a choice among them needs."""
    x = torch.linspace(0.3, 0.31, 200, dtype=torch.float64).repeat(2)

    def run(seed: int, fine: bool = True) -> torch.Tensor:
        with StepsMode(torch.float32, fine, seed):
            return torch.add(torch.tanh(x), 0.0)

    off = (run(1) - torch.tanh(x)) / 2.0**-25
    assert 0.5 < float(off.abs().max()) <= 4 + 0.5
    assert torch.equal(*run(1).chunk(2))
    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    assert float(((run(1, fine=False) - torch.tanh(x)) / 2.0**-25).abs().max()) <= 0.5
