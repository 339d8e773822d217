"""Cross entropy: chunks, label smoothing, z-loss, fused with a linear layer: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import integers, normal
from cases.kernels.rounding import once, tiles

Tensor = torch.Tensor

IGNORED = -100


def logits(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    target = integers(g, 200, 40)
    target[::5] = IGNORED
    return [normal(g, dtype, 40, 200, scale=3.0), target, None, None, IGNORED, None, "mean", 0.1]


def streamed_lse(x: Tensor, size: int = 64) -> Tensor:
    """log-sum-exp with a running maximum."""
    largest = torch.full_like(x[..., 0], -torch.inf)
    total = torch.zeros_like(largest)
    for tile in tiles(x, size):
        higher = torch.maximum(largest, tile.amax(-1))
        total = total * torch.exp(largest - higher) + torch.exp(tile - higher[..., None]).sum(-1)
        largest = higher
    return largest + total.log()


def rows_loss(x: Tensor, target: Tensor, smoothing: float, lse: Tensor) -> Tensor:
    picked = x.gather(1, target.clamp_min(0)[:, None])[:, 0]
    losses = lse - (1 - smoothing) * picked - smoothing * x.mean(-1)
    return torch.where(target == IGNORED, 0.0, losses)


def entropy(x: Tensor, target: Tensor, *rest: Any) -> Tensor:
    losses = rows_loss(x, target, rest[-1], streamed_lse(x))
    return losses.sum() / (target != IGNORED).sum()


def entropy_gradient(g: Tensor, x: Tensor, target: Tensor, *rest: Any) -> tuple[Any, ...]:
    kept = (target != IGNORED)[:, None]
    wanted = torch.full_like(x, rest[-1] / x.shape[-1])
    wanted = wanted.scatter_add(1, target.clamp_min(0)[:, None], torch.full_like(x[:, :1], 1 - rest[-1]))
    gradient = (torch.exp(x - torch.logsumexp(x, -1, True)) - wanted) * kept / kept.sum()
    return (g * gradient, None, *(None for _ in rest))


ENTROPY = Task(
    "cross entropy", "softmax", once(entropy), F.cross_entropy, logits, "Functional.cross_entropy", backward=True
)


def rows(x: Tensor, target: Tensor, *rest: Any) -> Tensor:
    return rows_loss(x, target, rest[-1], streamed_lse(x))


ROWS = Task(
    "cross entropy of each row",
    "softmax",
    once(rows),
    F.cross_entropy,
    lambda dtype, g: [*logits(dtype, g)[:6], "none", 0.1],
    "Functional.cross_entropy",
    backward=True,
)
