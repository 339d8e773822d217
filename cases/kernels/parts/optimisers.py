"""Optimisers: Adam, momentum, Lion, master weights, averages, clipping, loss scale: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import NARROW, Task
from cases.kernels.making import normal, state, uniform
from cases.kernels.rounding import down, up

Tensor = torch.Tensor

Step = tuple[Tensor, Tensor, Tensor]

N = 3000


def adam_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Parameters and gradients in the dtype, both moments in float32, the step."""
    wide = state(dtype)
    return [
        normal(g, dtype, N, scale=0.05),
        normal(g, dtype, N, scale=1e-2),
        normal(g, wide, N, scale=5e-3),
        uniform(g, wide, N, low=1e-6, high=1e-4),
        3,
    ]


def moments(g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g


def adamw(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int) -> Step:
    m, v = moments(g, m, v)
    root = (v / (1 - 0.999**step)).sqrt() + 1e-8
    return p * (1 - 1e-3 * 0.1) - 1e-3 * m / (1 - 0.9**step) / root, m, v


def kernel(change: Any = adamw, narrowing: Any = down) -> Any:
    """A step computed in float32, whose parameters alone are rounded."""

    def run(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int) -> Step:
        q, m, v = change(up(p), up(g), m, v, step)
        return narrowing(q, p.dtype), m, v

    return run


ADAM = Task("AdamW", "optimisers", kernel(), adamw, adam_inputs)


def master(p: Tensor, w: Tensor, g: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Master weights w beside the model's p."""
    new = w - rate * g
    return new + 0 * p, new


def with_master(p: Tensor, w: Tensor, g: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    new = w - rate * up(g)
    return new.to(p.dtype), new


MASTER = Task(
    "master weights",
    "optimisers",
    with_master,
    master,
    lambda dtype, g: [normal(g, dtype, N), normal(g, state(dtype), N), normal(g, dtype, N), 1e-3],
    dtypes=NARROW,
)


def momentum(p: Tensor, g: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    new = 0.9 * b + g
    return p - 0.01 * (g + 0.9 * new), new


MOMENTUM = Task(
    "Nesterov momentum",
    "optimisers",
    lambda p, g, b: (
        torch.add(up(p), torch.add(up(g), 0.9 * b + up(g), alpha=0.9), alpha=-0.01).to(p.dtype),
        torch.add(up(g), b, alpha=0.9),
    ),
    momentum,
    lambda dtype, g: [normal(g, dtype, N), normal(g, dtype, N), normal(g, state(dtype), N)],
)


def clipped(a: Tensor, b: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    norm = (a.square().sum() + b.square().sum()).sqrt()
    factor = (limit / (norm + 1e-6)).clamp_max(1.0)
    return a * factor, b * factor, norm


def clip(norm_of: Any = None, factor_of: Any = None) -> Any:
    """Clipping by another norm, or another factor of limit and norm."""

    def run(a: Tensor, b: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
        x, y = up(a), up(b)
        norm = (norm_of or (lambda x, y: torch.stack([x.norm(), y.norm()]).norm()))(x, y)
        factor = (factor_of or (lambda limit, norm: (limit / (norm + 1e-6)).clamp_max(1.0)))(limit, norm)
        return (x * factor).to(a.dtype), (y * factor).to(b.dtype), norm

    return run


CLIP = Task(
    "gradient clipping",
    "optimisers",
    clip(),
    clipped,
    lambda dtype, g: [normal(g, dtype, 40_000), normal(g, dtype, 2000, scale=3.0), 1.0],
)


def unscaled(g: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return g / scale, (~torch.isfinite(g)).any()


UNSCALE = Task(
    "loss scale",
    "optimisers",
    lambda g, s: ((up(g) * (1 / s)).to(g.dtype), (~torch.isfinite(g)).any()),
    unscaled,
    lambda dtype, g: [normal(g, dtype, N, scale=100.0), 1024.0],
)
