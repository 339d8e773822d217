"""Softmax, log-softmax and cross entropy: tasks and healthy kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import (
    once,
)

Tensor = torch.Tensor

LOG2E = 1.4426950408889634


def softmax(x: Tensor, dim: int) -> Tensor:
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


SOFTMAX = Task(
    "softmax",
    "softmax",
    once(softmax),
    F.softmax,
    lambda dtype, g: [normal(g, dtype, 24, 300, scale=3.0), -1],
    "Functional.softmax",
    backward=True,
)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x.masked_fill(mask, -torch.inf), -1)


MASKED = Task(
    "masked softmax",
    "softmax",
    once(masked),
    masked,
    lambda dtype, g: [normal(g, dtype, 24, 128, scale=2.0), torch.rand(24, 128, generator=g) < 0.3],
    backward=True,
)


def log_softmax(x: Tensor, dim: int) -> Tensor:
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.exp(shifted).sum(dim, keepdim=True).log()


LOG = Task(
    "log-softmax",
    "softmax",
    once(log_softmax),
    F.log_softmax,
    lambda dtype, g: [normal(g, dtype, 24, 300, scale=5.0), -1],
    "Functional.log_softmax",
    backward=True,
)
