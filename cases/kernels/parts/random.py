"""Random numbers: dropout, normal, uniform, Bernoulli, multinomial, exponential: tasks and healthy kernels."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import up

Tensor = torch.Tensor

N = 60_000


def uniforms(*shape: int) -> Tensor:
    return torch.rand(shape)


def dropout(x: Tensor, p: float) -> Tensor:
    kept = uniforms(*x.shape) >= p
    return (up(x) * kept / (1 - p)).to(x.dtype)


def masked(x: Tensor, kept: Tensor, factor: float) -> Tensor:
    return (up(x) * kept * factor).to(x.dtype)


DROPOUT = Task(
    "dropout",
    "random",
    dropout,
    F.dropout,
    lambda dtype, g: [normal(g, dtype, 200, 300, mean=1.0), 0.2],
    "Functional.dropout",
    backward=True,
    loose=True,
)


def box_muller(n: int) -> Tensor:
    u, angle = 1 - torch.rand(n), torch.rand(n) * 2 * math.pi
    return (-2 * u.log()).sqrt() * angle.cos()


def filled(draw: Any) -> Any:
    """normal_ by another draw."""

    def run(x: Tensor, mean: float, std: float) -> Tensor:
        return x.copy_(mean + std * draw(x.numel()).view(x.shape))

    return run


NORMAL = Task(
    "normal",
    "random",
    filled(box_muller),
    torch.Tensor.normal_,
    lambda dtype, g: [torch.zeros(N, dtype=dtype), 0.5, 2.0],
    "Tensor.normal_",
    loose=True,
)

UNIFORM = Task(
    "uniform",
    "random",
    lambda x, low, high: x.copy_(low + (high - low) * torch.rand(x.shape)),
    torch.Tensor.uniform_,
    lambda dtype, g: [torch.zeros(N, dtype=dtype), -1.0, 3.0],
    "Tensor.uniform_",
    loose=True,
)

BERNOULLI = Task(
    "Bernoulli",
    "random",
    lambda p: (torch.rand(p.shape) < up(p)).to(p.dtype),
    torch.bernoulli,
    lambda dtype, g: [uniform(g, dtype, N)],
    "Torch.bernoulli",
    loose=True,
)

MULTINOMIAL = Task(
    "multinomial",
    "random",
    lambda p, n, again: torch.searchsorted((up(p) / up(p).sum()).cumsum(0), torch.rand(n)).clamp_max(len(p) - 1),
    torch.multinomial,
    lambda dtype, g: [uniform(g, dtype, 12, low=0.1), 30_000, True],
    "Torch.multinomial",
    loose=True,
)

EXPONENTIAL = Task(
    "exponential",
    "random",
    lambda x, rate: x.copy_(-(1 - torch.rand(x.shape)).log() / rate),
    torch.Tensor.exponential_,
    lambda dtype, g: [torch.zeros(N, dtype=dtype), 2.0],
    "Tensor.exponential_",
    loose=True,
)
