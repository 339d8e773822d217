"""Products of several pairs of matrices in one call."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_probe.references.arguments import at_least_float32, check_shapes


def grouped_matmul(
    x: Sequence[torch.Tensor], weight: Sequence[torch.Tensor], bias: Sequence[torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """x[i] @ weight[i] + bias[i] of each group. x[i]: (..., K_i); weight[i]: (K_i, N_i); bias[i]: (N_i). Results have
    the dtypes of x."""
    given = len(x) if bias is None else len(bias)
    check_shapes(
        len(x) == len(weight) == given,
        f"{len(x)} groups of x, {len(weight)} of weight, {given} of bias",
        "as many of each",
    )
    return [
        _product(rows, matrix, None if bias is None else bias[place])
        for place, (rows, matrix) in enumerate(zip(x, weight, strict=True))
    ]


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    check_shapes(
        weight.dim() == 2 and x.shape[-1] == weight.shape[0],
        f"x of shape {list(x.shape)} and a weight of shape {list(weight.shape)}",
        "(..., K) and (K, N)",
    )
    product = at_least_float32(x) @ at_least_float32(weight)
    return (product if bias is None else product + bias).to(x.dtype)
