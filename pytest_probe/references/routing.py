"""The choice of experts in a mixture of experts."""

from __future__ import annotations

import torch

from pytest_probe.references.arguments import check_shapes


def top_k_gating(
    x: torch.Tensor, k: int = 1, finished: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
