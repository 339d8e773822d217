from __future__ import annotations

import pytest
import torch

from pytest_probe.frameworks.torch.cpu16.reductions import vectorised
from tests.frameworks.torch.cpu16.rounding import DTYPES, different, threads


def near_one(*shape: int, spread: float = 0.1) -> torch.Tensor:
    return 1 + spread * (torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) - 0.5)


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "in order":
        return x
    return x.t().contiguous().t() if layout == "transposed" else x.repeat(1, 2)[:, : x.shape[1]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["in order", "transposed", "cut"])
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("shape", [(3, 5), (37, 65), (5, 200)])
def test_products_are_the_kernels(shape: tuple[int, int], dim: int | None, layout: str, dtype: torch.dtype) -> None:
    x = laid_out(near_one(*shape).to(dtype), layout)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.prod() if dim is None else x.prod(dim)

    with threads(1):
        assert different(function, [x], dtype) == [0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_threads_share_the_product_of_a_large_tensor(dtype: torch.dtype) -> None:
    x = near_one(70_001, spread=0.01).to(dtype)
    with threads(2):
        assert different(torch.prod, [x], dtype) == [0, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_with_zeros_have_gradients_that_do_not_divide(dtype: torch.dtype) -> None:
    x = near_one(4, 9).to(dtype)
    x[1, 2] = 0
    with threads(1):
        assert different(lambda x: torch.prod(x, 1, keepdim=True), [x], dtype) == [0, 0]


def test_lanes_are_multiplied_before_the_rest() -> None:
    """Of float16 numbers 3 x 683 is 2,048, and 2.25 x 683 is 1,537."""
    row, one = torch.ones(1, 65, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    row[0, 0], row[0, 16], row[0, 64] = 3, 683, 0.75
    assert vectorised(torch.float16, one, row).tolist() == [1536]
    assert vectorised(torch.float16, one, row[:, [0, 64, 16]]).tolist() == [1537]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("initial", [None, 1.3])
@pytest.mark.parametrize("how", ["sum", "mean", "prod", "max"])
def test_segments_are_the_kernels(how: str, initial: float | None, dtype: torch.dtype) -> None:
    x = near_one(40, 7, spread=0.9).to(dtype)
    cuts = {"lengths": torch.tensor([3, 0, 10, 27])}, {"offsets": torch.tensor([0, 3, 3, 13, 40])}
    for cut in cuts:
        assert different(lambda x, cut=cut: torch.segment_reduce(x, how, initial=initial, **cut), [x], dtype) == [0, 0]
    lengths = torch.tensor([[3, 0, 10, 27], [10, 10, 10, 10]])
    batch = near_one(2, 40, 3, spread=0.9).to(dtype)
    found = different(lambda x: torch.segment_reduce(x, how, lengths=lengths, initial=initial, axis=1), [batch], dtype)
    assert found == [0, 0]
