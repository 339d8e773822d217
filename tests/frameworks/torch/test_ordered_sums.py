from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.frameworks.torch.rounding import StepsMode
from pytest_probe.numerics.float32_sums import in_sequence


def positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.5


def in_order(function: Callable[..., Any], *arguments: Any) -> Any:
    wide = [value.double() if isinstance(value, torch.Tensor) else value for value in arguments]
    with StepsMode(torch.float32, fine=True, order="sequence"):
        return function(*wide)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_along_dimensions_are_added_in_the_order_of_their_indices(dims: tuple[int, ...], keepdim: bool) -> None:
    x = positive(13, 17, 11)
    axes = sorted(dim % 3 for dim in dims)
    rest = [axis for axis in range(3) if axis not in axes]
    terms = np.transpose(x.numpy(), [*axes, *rest]).reshape(-1, *[x.shape[axis] for axis in rest])
    found = in_order(lambda x: x.sum(dims, keepdim), x)
    assert found.shape == x.sum(dims, keepdim).shape
    assert np.array_equal(found.flatten().numpy(), in_sequence(terms).flatten())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mean": lambda x, y: x.mean(0),
    "var": lambda x, y: x.var(0),
    "std of all": lambda x, y: x.std(correction=0),
    "var_mean": lambda x, y: torch.var_mean(x, 1),
    "norm": lambda x, y: torch.linalg.vector_norm(x, dim=0),
    "foreach_norm": lambda x, y: torch._foreach_norm([x, y]),
    "mm": lambda x, y: x @ y.t(),
    "bmm": lambda x, y: torch.bmm(x.reshape(8, -1, 30), y.reshape(8, 30, -1)),
    "dot": lambda x, y: torch.dot(x[:, 0], y[:, 0]),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "linear": lambda x, y: torch.nn.functional.linear(x, y, y[:, 0]),
    "cumsum": lambda x, y: torch.cumsum(x, 0),
    "layer_norm": lambda x, y: torch.nn.functional.layer_norm(x, x.shape[1:], y[0]),
    "softmax": lambda x, y: torch.softmax(x, 0),
    "loss": lambda x, y: torch.nn.functional.mse_loss(x, y),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_result_is_that_of_the_function_but_for_rounding(name: str) -> None:
    x, y = positive(240, 30), positive(240, 30) + positive(30)
    right, found = FUNCTIONS[name](x.double(), y.double()), in_order(FUNCTIONS[name], x, y)
    pairs = zip(right, found, strict=True) if isinstance(right, (list, tuple)) else [(right, found)]
    for one, other in pairs:
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
        assert not torch.equal(other, one)


def test_gradients_are_added_in_order_as_well() -> None:
    x, bias = positive(3000, 4).double(), torch.zeros(4, dtype=torch.float64, requires_grad=True)
    with StepsMode(torch.float32, fine=True, order="sequence"):
        [found] = torch.autograd.grad((x + bias).mul(0.1).sum(), bias)
    assert np.array_equal(found.numpy(), in_sequence(np.full((3000, 4), 0.1)))
