"""Elements far smaller than the others of their output: a fault there is an error, and healthy kernels pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.comparing import compared

Tensor = torch.Tensor
Function = Callable[..., Tensor]
pytestmark = pytest.mark.usefixtures("no_causes")

DTYPES = (torch.float32, torch.bfloat16)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x, -1)


def product(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(x, weight)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def of_wide_logits() -> tuple[Tensor, ...]:
    return (30 * numbers(64, 256),)


def of_masked_logits() -> tuple[Tensor, ...]:
    return (numbers(64, 256) - 500 * torch.ones(64, 256).triu(16),)


def of_small_rows() -> tuple[Tensor, ...]:
    return numbers(64, 96) * torch.logspace(-8, 0, 64)[:, None], numbers(96, 32)


def of_small_numbers() -> tuple[Tensor, ...]:
    x = numbers(64, 256)
    return x.sign() * torch.exp(4 * x), numbers(256)


CALLS: dict[str, tuple[Function, Callable[[], tuple[Tensor, ...]]]] = {
    "Functional.softmax": (softmax, of_wide_logits),
    "Torch.matmul": (product, of_small_rows),
    "Functional.rms_norm": (rms_norm, of_small_numbers),
}


def by_powers_of_two(x: Tensor) -> Tensor:
    y = x.float() * 1.4426950408889634
    powers = torch.exp2(y - y.amax(-1, keepdim=True))
    return powers * (1 / powers.sum(-1, keepdim=True))


def by_blocks(x: Tensor) -> Tensor:
    x = x.float()
    largest, total = torch.full_like(x[..., :1], -torch.inf), torch.zeros_like(x[..., :1])
    for block in x.split(32, -1):
        larger = torch.maximum(largest, block.amax(-1, keepdim=True))
        total = total * torch.exp(largest - larger) + torch.exp(block - larger).sum(-1, keepdim=True)
        largest = larger
    return torch.exp(x - largest) / total


def flushing(x: Tensor) -> Tensor:
    found = F.softmax(x.float(), -1)
    return torch.where(found < 2.0**-126, 0.0, found)


def clipping(x: Tensor) -> Tensor:
    powers = torch.exp((x.double() - x.double().amax(-1, keepdim=True)).clamp(min=-64))
    return powers / powers.sum(-1, keepdim=True)


def split_in_two(x: Tensor, weight: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x[:, :half].float() @ weight[:half].float() + x[:, half:].float() @ weight[half:].float()


def by_a_root(x: Tensor, weight: Tensor) -> Tensor:
    x = x.float()
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) / x.shape[-1] + 1e-6) * weight.float()


HEALTHY = {
    "Functional.softmax": (softmax, by_powers_of_two, by_blocks, flushing),
    "Torch.matmul": (product, split_in_two),
    "Functional.rms_norm": (rms_norm, by_a_root),
}


def verdict(function: Function, api: str, dtype: torch.dtype, device: str) -> str:
    reference, inputs = CALLS[api]
    args = [each.to(dtype) for each in inputs()]

    def kernel(*args: Tensor) -> Tensor:
        return function(*args).to(dtype)

    return compared(kernel, reference, args, device=device, allow="none", api=api)[0].verdict


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("api", "function"), [(api, each) for api, some in HEALTHY.items() for each in some])
def test_healthy_kernels_pass(api: str, function: Function, dtype: torch.dtype, device: str) -> None:
    assert verdict(function, api, dtype, device) == "pass"


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
def test_clipped_exponents_pass(dtype: torch.dtype, device: str) -> None:
    args = [each.to(dtype) for each in of_masked_logits()]
    (found,) = compared(
        lambda x: clipping(x).to(dtype), softmax, args, device=device, allow="none", api="Functional.softmax"
    )
    assert found.verdict == "pass", found.reason


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("api", CALLS)
def test_a_small_element_that_is_off_by_a_tenth_is_an_error(
    api: str, share: float, dtype: torch.dtype, device: str
) -> None:
    def wrong(*args: Tensor) -> Tensor:
        found = CALLS[api][0](*args).clone()
        sizes = found.double().abs()
        typical = sizes.square().mean().sqrt()
        found.view(-1)[(sizes / typical / share).log().abs().argmin()] *= 1.1
        return found

    assert verdict(wrong, api, dtype, device) == "error"


class SoftmaxOfGpu(torch.autograd.Function):
    """The gradient is a difference of numbers near 1 where a row is confident, as in torch's kernel for CUDA."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        found = F.softmax(x.float(), -1)
        ctx.save_for_backward(found)
        return found.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (found,) = ctx.saved_tensors
        product = gradient.float() * found
        return (product - found * product.sum(-1, keepdim=True)).to(gradient.dtype)


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_confident_rows_pass(seed: int, dtype: torch.dtype, device: str) -> None:
    x = torch.randn(256, 16, generator=torch.Generator().manual_seed(seed))
    x[:, 3] += 12 + 8 * x[:, 4].abs()
    found = compared(
        SoftmaxOfGpu.apply,
        softmax,
        [x.to(dtype)],
        device=device,
        api="Functional.softmax",
        backward=True,
        key=str(seed),
    )
    assert [each.verdict for each in found] == ["pass", "pass"]


@pytest.mark.parametrize("device", ["cpu", "other"])
@pytest.mark.parametrize("seed", range(3))
def test_losses_of_confident_rows_pass(seed: int, device: str) -> None:
    x = torch.randn(512, 64, generator=torch.Generator().manual_seed(seed))
    x[:, 3] += 12 + 8 * x[:, 4].abs()
    labels = torch.where(torch.arange(512) % 3 == 0, 5, 3)

    def kernel(x: Tensor, labels: Tensor) -> Tensor:
        largest = x.amax(-1, keepdim=True)
        sums = largest + torch.exp(x - largest).sum(-1, keepdim=True).log()
        return (sums - x.gather(-1, labels[:, None]))[:, 0]

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(x, labels, reduction="none")

    (found,) = compared(kernel, loss, [x, labels], device=device, api="Functional.cross_entropy", key=str(seed))
    assert found.verdict == "pass", found.reason
