"""Layers of models: normalisations, fused with what stands before or behind them, activations without a function of
torch's, and a mixture of experts, with their choice and the products of several pairs of matrices in one call."""

from __future__ import annotations

from collections.abc import Sequence

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


def top_k_gating(x: Tensor, k: int = 1, finished: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of softmax(x), the experts that they belong to, and the places of these in a sorted order (Shazeer
    et al. 2017, arXiv:1701.06538).

    x: (..., E), scores of E experts; finished: bool, (...), rows that take no expert: E stands for theirs. Returns
    the weights, (..., k), the experts, int32, the first of equal ones first, and j * rows + i for choice j of row i,
    int32.
    """
    check_shapes(
        x.dim() > 1 and 0 < k <= x.shape[-1] and (finished is None or finished.numel() == x[..., 0].numel()),
        f"x of shape {list(x.shape)}, k {k}"
        + ("" if finished is None else f", finished of shape {list(finished.shape)}"),
        "(..., E) with k of E experts, and one number of finished for each row",
    )
    weights = torch.softmax(x, -1)
    chosen, experts = torch.sort(weights, dim=-1, descending=True, stable=True)
    chosen, experts = chosen[..., :k], experts[..., :k]
    if finished is not None:
        experts = torch.where(finished.reshape(*x.shape[:-1], 1), x.shape[-1], experts)
    rows = chosen[..., 0].numel()
    places = torch.arange(rows * k, device=x.device).reshape(k, rows).T.reshape(chosen.shape)
    return chosen, experts.to(torch.int32), places.to(torch.int32)


def grouped_matmul(x: Sequence[Tensor], weight: Sequence[Tensor], bias: Sequence[Tensor] | None = None) -> list[Tensor]:
    """x[i] @ weight[i] + bias[i] of each group. x[i]: (..., K_i); weight[i]: (K_i, N_i); bias[i]: (N_i). Results have
    the dtypes of x."""
    given = len(x) if bias is None else len(bias)
    check_shapes(
        len(x) == len(weight) == given,
        f"{len(x)} groups of x, {len(weight)} of weight, {given} of bias",
        "as many of each",
    )
    found = []
    for place, (rows, matrix) in enumerate(zip(x, weight, strict=True)):
        check_shapes(
            matrix.dim() == 2 and rows.shape[-1] == matrix.shape[0],
            f"x of shape {list(rows.shape)} and a weight of shape {list(matrix.shape)}",
            "(..., K) and (K, N)",
        )
        product = at_least_float32(rows) @ at_least_float32(matrix)
        found.append((product if bias is None else product + bias[place]).to(rows.dtype))
    return found
