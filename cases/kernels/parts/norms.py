"""Norms: layer and RMS: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import (
    once,
    with_gradient,
)

Tensor = torch.Tensor


def layer_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Rows of several sizes, some with a variance about eps."""
    x = normal(g, torch.float64, 24, 250) * torch.tensor([1.0, 4.0, 3e-3]).repeat(8)[:, None] + 0.002
    return [x.to(dtype), (250,), normal(g, dtype, 250, mean=1.0, scale=0.3), normal(g, dtype, 250, scale=0.5), 1e-5]


def layer(x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    var = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(var + eps) * w + b


def layer_blocks(x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> Tensor:
    """Mean and squares of blocks of 50, combined as Chan does."""
    blocks = x.reshape(-1, 5, 50)
    means = blocks.mean(-1)
    mean = means.mean(-1, keepdim=True)
    squares = (blocks - means[..., None]).square().sum(-1) + 50 * (means - mean).square()
    return (x - mean) * torch.rsqrt(squares.sum(-1, keepdim=True) / 250 + eps) * w + b


def layer_by_sums(x: Tensor, w: Tensor, b: Tensor, total: Tensor, squares: Tensor, count: float, eps: float) -> Tensor:
    return (x - total / count) * torch.rsqrt(squares / count + eps) * w + b


def layer_gradient(g: Tensor, x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> tuple[Any, ...]:
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    hat, gw = (x - mean) * rstd, g * w
    gx = rstd * (gw - gw.mean(-1, keepdim=True) - hat * (gw * hat).mean(-1, keepdim=True))
    return gx, None, (g * hat).sum(0), g.sum(0), None


LAYER = Task("layer norm", "norms", once(layer), F.layer_norm, layer_inputs, "Functional.layer_norm", backward=True)


def layer_gradient_part(which: str) -> Any:
    """The gradient with one term left out."""

    def gradient(g: Tensor, x: Tensor, shape: tuple[int, ...], w: Tensor, b: Tensor, eps: float) -> tuple[Any, ...]:
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
        hat, gw = (x - mean) * rstd, g * w
        of_mean, of_var = gw.mean(-1, keepdim=True), hat * (gw * hat).mean(-1, keepdim=True)
        gx = rstd * (gw - of_mean * (which != "mean") - of_var * (which != "variance"))
        return gx, None, (g * hat).sum(0), g.sum(0), None

    return with_gradient(layer, gradient)


def rms_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    x = normal(g, torch.float64, 24, 256) * torch.tensor([1.0, 20.0, 1e-3]).repeat(8)[:, None]
    return [x.to(dtype), (256,), normal(g, dtype, 256, mean=1.0, scale=0.3), 1e-6]


def rms(x: Tensor, shape: tuple[int, ...], w: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def rms_gradient(g: Tensor, x: Tensor, shape: tuple[int, ...], w: Tensor, eps: float) -> tuple[Any, ...]:
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    gw = g * w
    gx = rstd * (gw - x * rstd.square() * (gw * x).mean(-1, keepdim=True))
    return gx, None, (g * x * rstd).sum(0), None


RMS = Task("RMS norm", "norms", once(rms), F.rms_norm, rms_inputs, "Functional.rms_norm", backward=True)
