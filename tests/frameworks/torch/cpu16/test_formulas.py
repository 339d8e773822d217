"""Formulas whose 16-bit steps depend on where an element lies, or on a constant that an API computed: bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.frameworks.torch.cpu16.rounding import DTYPES, different, threads

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads cut loops, and so what no vector holds, in other places."""
    with threads(1):
        yield


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def index(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("exponent", [-0.5, -1, -2, 3, 0.5, 1 / 3, 0.7])
def test_powers(exponent: float, dtype: torch.dtype) -> None:
    for size in (5, 40, 64, 100):
        x = (normal(size).abs() + 0.2).to(dtype)
        assert different(lambda x: x.pow(exponent), (x,), dtype) == [0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_an_exponent_that_the_api_computes(p: float, dtype: torch.dtype) -> None:
    assert different(lambda x: F.lp_pool2d(x, p, 2), (normal(2, 3, 8, 9).abs().to(dtype),), dtype) == [0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [1, 0.3])
@pytest.mark.parametrize("columns", [5, 40, 64])
def test_sums_of_scaled_slices(columns: int, alpha: float, dtype: torch.dtype) -> None:
    function = functools.partial(torch.index_add, alpha=alpha)
    x, rows, sides = normal(6, columns).to(dtype), normal(40, columns).to(dtype), normal(6, 40).to(dtype)
    assert different(function, (x, 0, index(6, 40), rows), dtype) == [0, 0, 0]
    assert different(function, (x, 0, index(6, 40), normal(40, columns, 2)[..., 1].to(dtype)), dtype) == [0, 0, 0]
    assert different(function, (x, 1, index(columns, 40), sides), dtype) == [0, 0, 0]
    assert different(function, (x[0], 0, index(columns, 40), sides[0]), dtype) == [0, 0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("padding", [None, 0])
def test_gradients_of_the_largest_in_a_bag(padding: int | None, dtype: torch.dtype) -> None:
    function = functools.partial(F.embedding_bag, mode="max", padding_idx=padding)
    assert different(function, (index(4, 20, 3), normal(4, 33).to(dtype)), dtype) == [0, 0]


LAYOUTS: dict[str, Function] = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "cut": lambda x: x.repeat_interleave(2, -1)[..., ::2],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("join", [torch.add, torch.sub, torch.rsub])
@pytest.mark.parametrize("second", [(7, 40), (40,), (7, 1), (1, 40), ()])
def test_scaled_sums_however_they_lie(second: tuple[int, ...], join: Function, dtype: torch.dtype) -> None:
    function = functools.partial(join, alpha=0.3)
    for x in (lay(normal(7, 40).to(dtype)) for lay in LAYOUTS.values()):
        for lay in LAYOUTS.values() if len(second) > 1 else (LAYOUTS["as it is"],):
            assert different(function, (x, lay(normal(*second).to(dtype))), dtype)[0] == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_a_single_row(reduction: str, dtype: torch.dtype) -> None:
    x, weight = normal(5).log_softmax(-1).to(dtype), normal(5).abs().to(dtype)

    def loss(x: torch.Tensor, target: int) -> torch.Tensor:
        return F.nll_loss(x, torch.tensor(target), weight.to(x.dtype), reduction=reduction, ignore_index=0)

    for target in range(5):
        assert different(loss, (x, target), dtype) == [0, 0]
