"""Norms: composed RMS, fused with a residual, group, batch with running statistics: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal, state
from cases.kernels.rounding import (
    once,
    up,
)

Tensor = torch.Tensor


def composed_rms(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


COMPOSED = Task(
    "Llama's RMS norm",
    "norms",
    once(composed_rms),
    composed_rms,
    lambda dtype, g: [normal(g, dtype, 32, 256), normal(g, dtype, 256, mean=1.0, scale=0.3), 1e-6],
    backward=True,
)


def fused_add(x: Tensor, r: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    h = x + r
    return composed_rms(h, w, eps), h


ADD = Task(
    "residual and RMS norm",
    "norms",
    once(fused_add),
    fused_add,
    lambda dtype, g: [
        normal(g, dtype, 32, 256),
        normal(g, dtype, 32, 256, scale=4.0),
        normal(g, dtype, 256, mean=1.0, scale=0.3),
        1e-6,
    ],
)


def group_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    x = normal(g, dtype, 4, 12, 7, 7, mean=0.5)
    return [x, 3, normal(g, dtype, 12, mean=1.0, scale=0.3), normal(g, dtype, 12, scale=0.5), 1e-5]


def group(x: Tensor, groups: int, w: Tensor, b: Tensor, eps: float) -> Tensor:
    parts = x.reshape(x.shape[0], groups, -1)
    mean = parts.mean(-1, keepdim=True)
    hat = (parts - mean) * torch.rsqrt((parts - mean).square().mean(-1, keepdim=True) + eps)
    return hat.view(x.shape) * w[:, None, None] + b[:, None, None]


GROUP = Task("group norm", "norms", once(group), F.group_norm, group_inputs, "Functional.group_norm", backward=True)


def batch_inputs(dtype: torch.dtype, g: torch.Generator, training: bool = True) -> list[Any]:
    return [
        normal(g, dtype, 8, 6, 5, 5, mean=1.0, scale=2.0),
        normal(g, state(dtype), 6),
        torch.tensor([1e-5, 0.5, 0.8, 1.0, 1.5, 4.0], dtype=state(dtype)),
        normal(g, state(dtype), 6, mean=1.0, scale=0.3),
        normal(g, state(dtype), 6),
        training,
        0.1,
        1e-5,
    ]


def batch(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    w: Tensor,
    b: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    *,
    unbiased: float = 200 / 199,
    keep: float = 1.0,
) -> Tensor:
    wide = up(x)
    if not training:
        return _applied(x, mean, var, w, b, eps)
    own = wide.mean((0, 2, 3))
    squares = (wide - own[:, None, None]).square().mean((0, 2, 3))
    mean.mul_(keep - momentum).add_(momentum * own)
    var.mul_(keep - momentum).add_(momentum * squares * unbiased)
    return _applied(x, own, squares, w, b, eps)


def _applied(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    rows = [item[:, None, None] for item in (mean, torch.rsqrt(var + eps) * w, b)]
    return ((up(x) - rows[0]) * rows[1] + rows[2]).to(x.dtype)


def batch_own(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor, t: bool, m: float, eps: float) -> Tensor:
    """The output by the batch, whose statistics nobody updates."""
    own = up(x).mean((0, 2, 3))
    return _applied(x, own, (up(x) - own[:, None, None]).square().mean((0, 2, 3)), w, b, eps)


BATCH = Task("batch norm", "norms", batch, F.batch_norm, batch_inputs, "Functional.batch_norm")

EVALUATION = Task(
    "batch norm in evaluation",
    "norms",
    batch,
    F.batch_norm,
    lambda dtype, g: batch_inputs(dtype, g, False),
    "Functional.batch_norm",
)
