from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_probe.frameworks.torch.autocast import KernelsMode
from pytest_probe.frameworks.torch.rounding import StepsMode
from pytest_probe.frameworks.torch.sequential_sums import piled
from pytest_probe.numerics import kernel

HALF = torch.float16


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_terms_are_added_in_order_and_every_sum_is_rounded() -> None:
    """2,048 and 1 is 2,048 in float16, so that the order shows."""
    index = torch.tensor([0, 1, 0, 1, 0])
    found = piled(HALF, torch.zeros(2, dtype=torch.float64), index, doubles(2048, 1, 1, 1, 1))
    assert found.tolist() == [2048, 2]
    assert piled(HALF, torch.zeros(2, dtype=torch.float64), index, doubles(1, 1, 1, 1, 2048)).tolist() == [2050, 2]


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16], ids=str)
def test_terms_are_added_alike_without_the_kernel(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of terms, in any layout and dtype of places."""
    generator = torch.Generator().manual_seed(0)
    terms = 1 + torch.randn(6, 300, generator=generator, dtype=torch.float64).t() / 8
    places, start = torch.randint(4, (300,), generator=generator, dtype=torch.int32), torch.ones(5, 6).double()
    found = piled(dtype, start, places, terms)
    monkeypatch.setattr(kernel, "compiled", None)
    assert torch.equal(found, piled(dtype, start, places, terms))


@pytest.mark.parametrize(("atomic", "total"), [(True, 256.0), (False, 300.0)])
def test_an_accelerator_alone_adds_by_an_index_in_16_bit(atomic: bool, total: float) -> None:
    index, ones = torch.zeros(300, dtype=torch.int64), torch.ones(300, dtype=torch.bfloat16)
    with KernelsMode("composed", atomic=atomic):
        found = torch.zeros(1, dtype=torch.bfloat16).index_add(0, index, ones)
    assert found.item() == total


def test_nothing_is_added_where_there_is_nothing() -> None:
    empty: Any = torch.zeros(0, dtype=torch.float64)
    assert piled(HALF, doubles(1, 2), torch.zeros(0, dtype=torch.long), empty).tolist() == [1, 2]


@pytest.mark.parametrize("name", ["scatter_add", "index_add"])
@pytest.mark.parametrize("suffix", ["", "_"])
def test_such_a_sum_stands_in_where_kernels_are_split(name: str, suffix: str) -> None:
    """A sum of ones in bfloat16 ends at 256. In float32, and on the CPU, nothing stands in."""
    index, ones = torch.zeros(600, dtype=torch.long), torch.ones(600, dtype=torch.float64)
    function: Callable[..., torch.Tensor] = getattr(torch.Tensor, name + suffix)

    def added(dtype: torch.dtype, *, fine: bool) -> list[float]:
        with StepsMode(dtype, fine):
            found: list[float] = function(torch.zeros(1, dtype=torch.float64), 0, index, ones).tolist()
        return found

    assert added(torch.bfloat16, fine=True) == [256.0]
    assert added(torch.bfloat16, fine=False) == [600.0]
    assert added(torch.float32, fine=True) == [600.0]


def test_places_of_a_dimension_are_kept_apart() -> None:
    """Terms of 2,048 and 1, of which the 1 is lost."""
    index, terms = torch.tensor([[0, 1], [0, 0]]), torch.tensor([[2048.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    with StepsMode(HALF, fine=True):
        found = torch.zeros(2, 2, dtype=torch.float64).scatter_add(0, index, terms)
        scaled = torch.zeros(2, 2, dtype=torch.float64).index_add(1, torch.tensor([1, 1]), terms, alpha=2.0)
    assert found.tolist() == [[2048.0, 1.0], [0.0, 1.0]]
    assert scaled.tolist() == [[0.0, 4096.0], [0.0, 4.0]]


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def embedding(weight: torch.Tensor) -> torch.Tensor:
    return F.embedding(torch.arange(600) % 7, weight, padding_idx=3)


def by_frequency(weight: torch.Tensor) -> torch.Tensor:
    return F.embedding(torch.arange(600) % 8, weight, scale_grad_by_freq=True)


def indexed(x: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(600) % 7, 1]


CALLS: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "layer_norm": (layer_norm, [(100, 64), (64,), (64,)]),
    "embedding": (embedding, [(7, 8)]),
    # Vectors fuse the product with the sum, so that nothing but a power of 2 is known to round alike.
    "embedding by frequency": (by_frequency, [(8, 8)]),
    "index": (indexed, [(7, 8)]),
    "take": (lambda x: torch.take(x, torch.arange(600) % 7), [(7, 8)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 9, 1), [(2, 3, 20, 20)]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 5, 1), [(2, 9, 9, 9)]),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 13), [(2, 3, 20, 20)]),
    "attention": (partial(F.scaled_dot_product_attention, is_causal=True), [(2, 4, 64, 32)] * 3),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 7), [(2, 9, 9, 9)]),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_the_cpus_kernel(name: str, dtype: torch.dtype, threads: int) -> None:
    function, shapes = CALLS[name]
    generator = torch.Generator().manual_seed(0)
    given = [(1 + torch.randn(*shape, generator=generator)).to(dtype) for shape in shapes]
    before, found = torch.get_num_threads(), []
    try:
        torch.set_num_threads(threads)
        for wide in (False, True):
            leaves = [(value.double() if wide else value.clone()).requires_grad_() for value in given]
            with StepsMode(dtype, fine=False) if wide else nullcontext():
                output = function(*leaves)
                incoming = torch.rand(output.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
                found.append(torch.autograd.grad(output, leaves, incoming.to(output.dtype)))
    finally:
        torch.set_num_threads(before)
    for own, steps in zip(*found, strict=True):
        # Ties of float32 inside decide otherwise, in attention of each product.
        assert (own == steps.to(dtype)).double().mean() > (0.8 if name == "attention" else 0.95)


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(1500, 7), (3, 7, 20, 30), (7,)], ids=str)
def test_losses_are_those_of_the_cpus_kernel(
    shape: tuple[int, ...], weighted: bool, reduction: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = -torch.rand(shape, generator=generator).to(dtype)
    places = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(7, places, generator=generator)
    target.view(-1)[3:9] = -100
    weight = (1 + torch.rand(7, generator=generator)).to(dtype) if weighted else None
    own = F.nll_loss(x, target, weight, reduction=reduction)
    with StepsMode(dtype, fine=False):
        wide = None if weight is None else weight.double()
        steps = F.nll_loss(x.double(), target, wide, reduction=reduction)
    assert torch.equal(own, steps.to(dtype))


def test_what_is_put_in_a_place_is_no_sum() -> None:
    index, terms = torch.tensor([1, 1]), doubles(1, 2)
    with StepsMode(HALF, fine=False):
        assert doubles(0, 0).put(index, terms).tolist() == [0, 2]
