"""A mixture of experts: the choice of experts, and the products of several pairs of matrices in one call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_probe.references.arguments import at_least_float32, check_shapes


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
