"""What torch's own kernels of an NVIDIA GPU compute in 16 bit, as its sources have it: sigmoid's and tanh's gradients,
and batch_norm's. An H200 gave the bits of the last for 30 of 30 channels that were compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tests.support.devices import Emulated

Tensor = torch.Tensor
Formula = Callable[[Tensor, Tensor], Tensor]
Fault = Callable[..., Any]
NARROW = (torch.bfloat16, torch.float16)
THREADS, WARP = 512, 32


class Patched(Emulated):
    """A device that calls others in the place of some functions where their first tensor is of 16 bit."""

    def __init__(self, name: str, patches: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__(name)
        self.patches = patches

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        patch = self.patches.get(function, function) if args[0].dtype in NARROW else function
        return patch(*args, **kwargs)


def by_formula(function: Callable[[Tensor], Tensor], gradient: Formula) -> Callable[[Tensor], Tensor]:
    """A function whose gradient is a formula of the incoming one and of its result, each operation rounded."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            result = function(x)
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return gradient(grad, *ctx.saved_tensors)

    return Function.apply


def sigmoid_gradient(grad: Tensor, result: Tensor) -> Tensor:
    return grad * (1 - result) * result


def tanh_gradient(grad: Tensor, result: Tensor) -> Tensor:
    return grad * (1 - result * result)


def reduced(terms: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of terms [batch, places] of one channel in float32: each thread adds its own, then warps theirs, where
    what a thread gets from another one is rounded."""
    batch, places = terms.shape
    across = next((count for count in (32, 64, 128, 256, 512) if places <= count), THREADS)
    along = max(1, THREADS // across)
    sums = torch.zeros(along, across)
    for row in range(batch):
        for part in terms[row].split(across):
            sums[row % along, : len(part)] += part
    left = torch.zeros(WARP)
    left[: THREADS // WARP] = shuffled(sums.view(-1, WARP), dtype)
    return shuffled(left[None], dtype)[0]


def shuffled(sums: Tensor, dtype: torch.dtype) -> Tensor:
    for offset in (16, 8, 4, 2, 1):
        sums = sums[:, :offset] + sums[:, offset : 2 * offset].to(dtype).float()
    return sums[:, 0]


def batch_norm(fault: Fault | None = None) -> Callable[..., Tensor]:
    """In float32 but for those sums; a fault gets the three gradients in float32, with what they are made of."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            wide, over = x.float(), [dim for dim in range(x.ndim) if dim != 1]
            own, spread = wide.mean(over), wide.var(over, unbiased=False)
            count = x.numel() // x.shape[1]
            mean.mul_(0.9).add_(own * 0.1)
            var.mul_(0.9).add_(spread * count / (count - 1) * 0.1)
            scale = (spread + 1e-5).rsqrt()
            ctx.save_for_backward(x, weight, own, scale)
            each = [value.view(-1, *[1] * (x.ndim - 2)) for value in (own, scale, weight, bias)]
            return ((wide - each[0]) * each[1] * each[2] + each[3]).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            x, weight, mean, scale = ctx.saved_tensors
            wide, count = grad.float(), x.numel() // x.shape[1]
            away = x.float() - mean.view(-1, *[1] * (x.ndim - 2))
            terms = wide, (wide * away).to(x.dtype).float()
            total, product = (
                torch.stack([reduced(each.flatten(1), x.dtype) for each in t.transpose(0, 1)]) for t in terms
            )
            of_mean, of_scale, factor = (
                value.view(-1, *[1] * (x.ndim - 2))
                for value in (total / count, product / count * scale * scale, scale * weight)
            )
            found = (wide - of_mean - away * of_scale) * factor, product * scale, total
            if fault is not None:
                found = fault(*found, (wide, of_mean, away * of_scale, factor / weight.view(of_mean.shape)))
            return found[0].to(x.dtype), None, None, found[1], found[2]

    def function(
        x: Tensor, mean: Tensor, var: Tensor, *, weight: Tensor, bias: Tensor, training: bool, **settings: float
    ) -> Tensor:
        assert training
        return Function.apply(x, mean, var, weight, bias)

    return function
