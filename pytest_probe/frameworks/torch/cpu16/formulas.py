"""PyTorch: 16-bit kernels of torch's own CPU that round inside, as the steps between which they do: formulas that they
evaluate step by step, rounding each, and kernels that are made of others.

Most kernels compute 16-bit tensors in float32 and round once; these do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pytest_probe.frameworks.torch.cpu16.loops import beyond_vectors
from pytest_probe.frameworks.torch.cpu16.sequential import fuses, lanes, looped

ATEN = torch.ops.aten
# torch's numbers for the reductions of a loss.
NONE, MEAN, SUM = 0, 1, 2


def constant(value: float) -> Tensor:
    """A Python float as a kernel has it, rounded like a tensor."""
    made: Tensor = ATEN.full.default((), value, dtype=torch.float64)
    return made


def reduced(loss: Tensor, reduction: int) -> Tensor:
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    inside = x if eps is None else torch.clamp(x, constant(eps), constant(1 - eps))
    return (inside / (1 - inside)).log()


def mse(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    gap = x - y
    return reduced(gap * gap, reduction)


def mse_backward(grad: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    norm = constant(2 / x.numel() if reduction == MEAN else 2.0)
    return norm * (x - y) * grad


def soft_margin(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    return reduced((-x * y).exp().log1p(), reduction)


def soft_margin_backward(grad: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    powers = (-y * x).exp()
    return -constant(1 / x.numel() if reduction == MEAN else 1.0) * y * powers / (powers + 1) * grad


def binary_cross_entropy(x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    # torch cuts logarithms at -100, and the backward's denominator at 1e-12, lest a certain and wrong answer gives inf.
    loss = (y - 1) * (-x).log1p().clamp(min=-100) - y * x.log().clamp(min=-100)
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    slope = grad * (x - y) / ((1 - x) * x).clamp(min=1e-12)
    slope = slope if weight is None else slope * weight
    return slope / x.numel() if reduction == MEAN else slope


def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, weight: Tensor | None = None, positive: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    logs = torch.nn.functional.logsigmoid(x)
    loss = (1 - y) * x - (logs if positive is None else ((positive - 1) * y + 1) * logs)
    return reduced(loss if weight is None else loss * weight, reduction)


def logsumexp(x: Tensor, dims: list[int], keep: bool = False) -> Tensor:
    largest = x.amax(dims, keepdim=True)
    largest = torch.where(largest.abs() == math.inf, 0.0, largest)
    sums = (x - largest).exp().sum(dims, keepdim=keep).log()
    return sums + largest.reshape(sums.shape)


def power(x: Tensor, exponent: float) -> Tensor:
    """The exponent is rounded, also where an API computed it (lp_pool2d: 1 / 3)."""
    return torch.pow(x, float(constant(exponent)))


def power_by_products(x: Tensor, exponent: float) -> Tensor:
    """Cubes and inverse squares are products; an inverse root is that of a root where no vectors hold it."""
    if exponent == 3:
        return x * x * x
    if exponent == -0.5:
        return torch.where(beyond_vectors(2 * lanes(), x), x.sqrt().reciprocal(), torch.pow(x, exponent))
    return (x * x).reciprocal() if exponent == -2 else power(x, exponent)


def rsqrt(x: Tensor) -> Tensor:
    """The square root is rounded before it is inverted, where no vector holds it."""
    root: Tensor = ATEN.sqrt.default(x)
    return torch.where(beyond_vectors(looped(), x), root.reciprocal(), torch.rsqrt(x))


def add(x: Tensor, y: Tensor, alpha: float = 1) -> Tensor:
    """The factor is rounded, and what it scales where no vector holds it, or vectors do not fuse."""
    return NotImplemented if alpha == 1 else _scaled_sum(torch.add, x, y, alpha)


def sub(x: Tensor, y: Tensor, alpha: float = 1) -> Tensor:
    return NotImplemented if alpha == 1 else _scaled_sum(torch.sub, x, y, alpha)


def _scaled_sum(join: Callable[..., Tensor], x: Tensor, y: Tensor, alpha: float) -> Tensor:
    factor = constant(alpha)
    if not fuses():
        return join(x, y * factor)
    return torch.where(beyond_vectors(looped(), x, y), join(x, y * factor), join(x, y, alpha=float(factor)))


FORMULAS: Mapping[Any, Callable[..., Any]] = {
    ATEN.logit.default: logit,
    ATEN.mse_loss.default: mse,
    ATEN.mse_loss_backward.default: mse_backward,
    ATEN.soft_margin_loss.default: soft_margin,
    ATEN.soft_margin_loss_backward.default: soft_margin_backward,
    ATEN.binary_cross_entropy.default: binary_cross_entropy,
    ATEN.binary_cross_entropy_backward.default: binary_cross_entropy_backward,
    ATEN.binary_cross_entropy_with_logits.default: binary_cross_entropy_with_logits,
    ATEN.logsumexp.default: logsumexp,
}
# What only one of the dtypes computes in its own precision.
OF_DTYPE: Mapping[torch.dtype, Mapping[Any, Callable[..., Any]]] = {
    torch.bfloat16: {ATEN.pow.Tensor_Scalar: power_by_products},
    torch.float16: {ATEN.pow.Tensor_Scalar: power, ATEN.sigmoid_backward.default: lambda grad, y: grad * (1 - y) * y},
}


COMPOSED: Mapping[Any, Callable[..., Any]] = {
    ATEN.rsqrt.default: rsqrt,
    ATEN.add.Tensor: add,
    ATEN.sub.Tensor: sub,
    ATEN.rsub.Tensor: lambda x, y, alpha=1: sub(y, x, alpha),
    ATEN.addcmul.default: lambda x, y, z, *, value=1: x + y * z * value,
    ATEN.addcdiv.default: lambda x, y, z, *, value=1: x + y / z * value,
    **dict.fromkeys((ATEN.lerp.Scalar, ATEN.lerp.Tensor), lambda x, end, weight: x + (end - x) * weight),
}
