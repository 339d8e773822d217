"""Rotary embeddings and position tables: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import Task
from cases.kernels.making import normal, state
from cases.kernels.rounding import once

Tensor = torch.Tensor


def table(dtype: torch.dtype, n: int = 32, half: int = 16, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """cos and sin, from float64, in float32."""
    angles = torch.arange(n, dtype=torch.float64)[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(state(dtype)), angles.sin().to(state(dtype))


def turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + turned(x) * sin


def rope_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 3, 32, 32, scale=2.0), *table(dtype)]


ROPE = Task("rotary embedding", "rope", once(rope), rope, rope_inputs, backward=True)

NARROW_TABLES = Task(
    "rotary embedding, 16-bit tables",
    "rope",
    once(rope),
    rope,
    lambda dtype, g: [normal(g, dtype, 3, 32, 32, scale=2.0), *(item.to(dtype) for item in table(dtype))],
    backward=True,
)


def tables(position: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    angles = position[:, None] * inverse
    return angles.cos(), angles.sin()


TABLES = Task(
    "tables",
    "rope",
    lambda p, i: tables(p, i),
    tables,
    lambda dtype, g: [torch.arange(500, dtype=state(dtype)), 10000.0 ** (-torch.arange(16, dtype=state(dtype)) / 16)],
    dtypes=(torch.float32,),
)
