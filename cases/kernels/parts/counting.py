"""Counting: histograms, bincount, bucketize, thresholds, sorting: tasks and healthy kernels."""

from __future__ import annotations

import torch

from cases.kernels.entry import F32, Task
from cases.kernels.making import integers, normal, uniform

Tensor = torch.Tensor


def counted(x: Tensor, bins: int, low: float, high: float, scale: float = 1.0, last: bool = True) -> Tensor:
    """By (x - low) * bins / width; what lies on the upper end counts into the last bin."""
    inside = x[(x >= low) & ((x <= high) if last else (x < high))]
    place = ((inside - low) * (bins / (high - low)) * scale).long().clamp_max(bins - 1)
    return torch.bincount(place, minlength=bins).to(x.dtype)


HISTC = Task(
    "histc",
    "counting",
    counted,
    torch.histc,
    lambda dtype, g: [
        torch.cat([uniform(g, dtype, 4000, low=-1.2, high=1.2), torch.tensor([-1.0, 1.0, 1.0, 0.5]).to(dtype)]),
        8,
        -1.0,
        1.0,
    ],
    "Torch.histc",
    dtypes=(F32,),
)

PLAIN = Task(
    "bincount without weights",
    "counting",
    lambda x: (x[:, None] == torch.arange(40)).sum(0),
    torch.bincount,
    lambda dtype, g: [torch.cat([integers(g, 40, 2000), torch.tensor([39])])],
    "Torch.bincount",
    dtypes=(F32,),
)

BUCKET = Task(
    "bucketize",
    "counting",
    lambda x, b: (x[:, None] > b).sum(-1),
    torch.bucketize,
    lambda dtype, g: [(integers(g, 40, 1000) / 4).to(dtype), torch.arange(1, 10).to(dtype)],
    "Torch.bucketize",
)


def chosen(x: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    return x >= limit, (x >= limit).sum()


THRESHOLD = Task(
    "threshold", "counting", chosen, chosen, lambda dtype, g: [(integers(g, 200, 1000) / 8).to(dtype), 12.5]
)

SORT = Task(
    "sort",
    "counting",
    lambda x: tuple(torch.sort(x, stable=True)),
    lambda x: tuple(torch.sort(x)),
    lambda dtype, g: [normal(g, dtype, 8, 200)],
    "Torch.sort",
    loose=True,
)

UNIQUE = Task(
    "unique",
    "counting",
    lambda x: torch.stack(
        [value for n, value in enumerate(torch.sort(x)[0]) if n == 0 or value != torch.sort(x)[0][n - 1]]
    ),
    torch.unique,
    lambda dtype, g: [integers(g, 60, 80)],
    "Torch.unique",
    dtypes=(F32,),
)
