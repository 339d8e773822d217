"""Normalisations, fused with what stands before or behind them in models, and activations without a function of
torch's."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_probe.references.arguments import at_least_float32, check_shapes

# Of the sigmoid that comes nearest to the normal distribution's (Hendrycks and Gimpel 2016, arXiv:1606.08415).
STEEPNESS = 1.702


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """silu(a) * b, where a and b are the halves of x along dim (Shazeer 2020, arXiv:2002.05202). x: an even number of
    places along dim; the result has half as many."""
    check_shapes(
        -x.dim() <= dim < x.dim() and x.shape[dim] % 2 == 0,
        f"x of shape {list(x.shape)} and dim {dim}",
        "an even number of places along dim",
    )
    first, second = x.chunk(2, dim)
    return torch.nn.functional.silu(first) * second


def fast_gelu(x: Tensor) -> Tensor:
    """x * sigmoid(1.702 x), the fast form of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
    wide = at_least_float32(x)
    return (wide * torch.sigmoid(STEEPNESS * wide)).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019, arXiv:1910.07467).

    x: (..., *weight.shape); the mean is taken over the dimensions of weight. Returns the result, of x's shape, and
    1 / sqrt(mean(x^2) + eps), of x's shape with 1 in those dimensions, in float32 at least.
    """
    dimensions = weight.dim()
    check_shapes(
        0 < dimensions <= x.dim() and x.shape[x.dim() - dimensions :] == weight.shape,
        f"x of shape {list(x.shape)} and a weight of shape {list(weight.shape)}",
        "a weight of the last dimensions of x",
    )
    wide = at_least_float32(x)
    inverse = torch.rsqrt(wide.square().mean(tuple(range(-dimensions, 0)), keepdim=True) + eps)
    # Kernels of 16-bit tensors round here as well, before they multiply by a weight of that dtype.
    normalised = (wide * inverse).to(x.dtype)
    return (normalised * weight).to(x.dtype), inverse


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    """`rms_norm` of x + residual. x, residual: of one shape. Returns the result, the inverse root mean square, and the
    sum."""
    check_shapes(
        x.shape == residual.shape, f"shapes {list(x.shape)} and {list(residual.shape)}", "two tensors of one shape"
    )
    total = x + residual
    return (*rms_norm(total, weight, eps), total)


def group_norm_silu(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """silu(group_norm(x)) (Wu and He 2018, arXiv:1803.08494).

    x: (N, C, ...), groups divides C; weight, bias: (C) or None. Returns the result, of x's shape, and mean and
    1 / sqrt(variance + eps) of each group, (N, groups); all in x's dtype.
    """
    check_shapes(
        x.dim() > 1 and groups > 0 and x.shape[1] % groups == 0,
        f"x of shape {list(x.shape)} and {groups} groups",
        "(N, C, ...) with as many channels in each group",
    )
    count, channels = x.shape[:2]
    wide = at_least_float32(x).reshape(count, groups, -1)
    mean = wide.mean(-1)
    inverse = torch.rsqrt(wide.var(-1, correction=0) + eps)
    normalised = ((wide - mean[..., None]) * inverse[..., None]).reshape(count, channels, -1)
    if weight is not None:
        normalised = normalised * weight[:, None]
    if bias is not None:
        normalised = normalised + bias[:, None]
    result = torch.nn.functional.silu(normalised).reshape(x.shape)
    return result.to(x.dtype), mean.to(x.dtype), inverse.to(x.dtype)
