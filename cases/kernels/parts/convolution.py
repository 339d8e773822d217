"""Convolutions and pooling: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import once

Tensor = torch.Tensor


def conv_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 2, 6, 11, 11), normal(g, dtype, 8, 6, 3, 3, scale=0.3), normal(g, dtype, 8), 1, 1]


def by_columns(x: Tensor, w: Tensor, b: Tensor, stride: int, padding: int) -> Tensor:
    """im2col, and one product."""
    columns = F.unfold(x, 3, padding=padding, stride=stride)
    return (w.flatten(1) @ columns + b[:, None]).reshape(x.shape[0], len(w), 11, 11)


CONV = Task("convolution", "convolution", once(by_columns), F.conv2d, conv_inputs, "Functional.conv2d", backward=True)


def conv_gradient(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of input, weight and bias."""
    of_x = F.conv_transpose2d(g, w, padding=1)
    of_w = F.conv2d(x.transpose(0, 1), g.transpose(0, 1), padding=1).transpose(0, 1)
    return of_x, of_w, g.sum((0, 2, 3))


def causal(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Mamba's depthwise convolution of 4 steps."""
    return F.silu(F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=x.shape[1]))


CAUSAL = Task(
    "causal depthwise convolution",
    "convolution",
    once(
        lambda x, w, b: F.silu(
            sum(w[:, i, None] * F.pad(x, (3 - i, 0))[..., : x.shape[-1]] for i in range(4)) + b[:, None]
        )
    ),
    causal,
    lambda dtype, g: [normal(g, dtype, 2, 12, 50), normal(g, dtype, 12, 4, scale=0.5), normal(g, dtype, 12)],
    backward=True,
)

POOL = Task(
    "average pooling",
    "convolution",
    once(lambda x, k, s, p: F.unfold(x.flatten(0, 1)[:, None], k, padding=p, stride=s).mean(1).view(2, 6, 6, 6)),
    F.avg_pool2d,
    lambda dtype, g: [normal(g, dtype, 2, 6, 11, 11), 3, 2, 1],
    "Functional.avg_pool2d",
    backward=True,
)

UPSAMPLE = Task(
    "bilinear upsampling",
    "convolution",
    once(lambda x, size, factor, mode, corners: F.interpolate(x, size, factor, mode, corners)),
    F.interpolate,
    lambda dtype, g: [normal(g, dtype, 2, 3, 6, 6), (13, 13), None, "bilinear", False],
    "Functional.interpolate",
)
