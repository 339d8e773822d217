"""Losses: squared, absolute, Huber, Kullback-Leibler, binary, cosine, contrastive: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, tiles

Tensor = torch.Tensor


def pair(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 30, 100), normal(g, dtype, 30, 100)]


def kl(log_q: Tensor, p: Tensor) -> Tensor:
    return F.kl_div(log_q, p, reduction="batchmean")


KL = Task(
    "Kullback-Leibler",
    "losses",
    once(
        lambda q, p: (
            torch.stack([(b * (b.log() - a)).sum() for a, b in zip(tiles(q, 32), tiles(p, 32), strict=True)]).sum()
            / len(p)
        )
    ),
    kl,
    lambda dtype, g: [
        torch.log_softmax(normal(g, torch.float64, 30, 100), -1).to(dtype),
        torch.softmax(normal(g, torch.float64, 30, 100), -1).to(dtype),
    ],
)

BCE = Task(
    "binary cross entropy with logits",
    "losses",
    once(lambda x, y: x.clamp_min(0) - x * y + torch.log1p(torch.exp(-x.abs()))),
    lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    lambda dtype, g: [normal(g, dtype, 30, 100, scale=10.0), (uniform(g, torch.float64, 30, 100) < 0.5).to(dtype)],
    backward=True,
)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    norms: Tensor = x.norm(dim=-1) * y.norm(dim=-1)
    return (x * y).sum(-1) / norms


COSINE = Task(
    "cosine similarity",
    "losses",
    once(cosine),
    F.cosine_similarity,
    pair,
    "Functional.cosine_similarity",
    backward=True,
)


def dpo(chosen: Tensor, rejected: Tensor, beta: float) -> Tensor:
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


DPO = Task(
    "preference loss",
    "losses",
    once(lambda c, r, beta: torch.log1p(torch.exp(-(beta * (c - r)).abs())).add((-beta * (c - r)).clamp_min(0)).mean()),
    dpo,
    lambda dtype, g: [normal(g, dtype, 64, scale=20.0), normal(g, dtype, 64, scale=20.0), 0.1],
    backward=True,
)
