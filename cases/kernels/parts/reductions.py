"""Reductions: sums, means, norms, variance, log-sum-exp, extremes: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import (
    once,
    tiles,
)

Tensor = torch.Tensor

MILLION = 1_000_000


def pairwise(x: Tensor) -> Tensor:
    while len(x) > 1:
        even = len(x) // 2 * 2
        x = torch.cat([x[:even:2] + x[1:even:2], x[even:]])
    return x[0]


def smaller(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """A tenth, for what needs no million."""
    return [normal(g, dtype, MILLION // 10)]


SUM = Task(
    "sum of a million",
    "reductions",
    once(pairwise),
    torch.sum,
    lambda dtype, g: [normal(g, dtype, MILLION)],
    "Torch.sum",
)

ROWS = Task(
    "sum of rows",
    "reductions",
    once(lambda x, d: torch.stack([t.sum(-1) for t in tiles(x, 64)]).sum(0)),
    lambda x, d: torch.sum(x, d),
    lambda dtype, g: [normal(g, dtype, 40, 300, mean=0.5), -1],
    "Torch.sum",
    backward=True,
)

MEAN = Task(
    "mean",
    "reductions",
    once(lambda x, d: (x / 300).sum(-1)),
    lambda x, d: torch.mean(x, d),
    lambda dtype, g: [normal(g, dtype, 40, 300, mean=2.0, scale=100.0), -1],
    "Torch.mean",
    backward=True,
)

VAR = Task(
    "variance",
    "reductions",
    once(lambda x, d: (x - x.mean(-1, True)).square().sum(-1) / 299),
    lambda x, d: torch.var(x, d),
    lambda dtype, g: [normal(g, dtype, 40, 300, mean=3.0), -1],
    "Torch.var",
    backward=True,
)

NORM = Task(
    "norm",
    "reductions",
    once(lambda x: x.square().sum().sqrt()),
    lambda x: torch.linalg.vector_norm(x),
    lambda dtype, g: [normal(g, dtype, 50_000, scale=3.0)],
    "Linalg.vector_norm",
    backward=True,
)

LSE = Task(
    "log-sum-exp",
    "reductions",
    once(lambda x, d: torch.stack([torch.logsumexp(t, -1) for t in tiles(x, 64)], -1).logsumexp(-1)),
    torch.logsumexp,
    lambda dtype, g: [normal(g, dtype, 40, 300, scale=5.0), -1],
    "Torch.logsumexp",
    backward=True,
)
