"""Scans: cumulative sums and products, linear recurrences as in Mamba, linear attention: tasks and healthy kernels."""

from __future__ import annotations

import torch

from cases.kernels.entry import Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, tiles

Tensor = torch.Tensor


def by_blocks(x: Tensor, dim: int, size: int = 32, carry: bool = True) -> Tensor:
    """Blocks by themselves, each with the sum before it."""
    done, before = [], torch.zeros_like(x[..., :1])
    for tile in tiles(x, size):
        block = torch.cumsum(tile, -1)
        done.append(block + before)
        before = done[-1][..., -1:] if carry else block[..., -1:]
    return torch.cat(done, -1)


def running(dtype: torch.dtype, x: Tensor) -> Tensor:
    total, sums = torch.zeros_like(x[..., 0]), []
    for column in x.movedim(-1, 0):
        total = (total + column).to(dtype).to(x.dtype)
        sums.append(total)
    return torch.stack(sums, -1)


CUMSUM = Task(
    "cumsum",
    "scans",
    once(by_blocks),
    torch.cumsum,
    lambda dtype, g: [normal(g, dtype, 12, 250), -1],
    "Torch.cumsum",
    backward=True,
)


def recurrence(a: Tensor, b: Tensor) -> Tensor:
    """h = a h + b, along the last dimension."""
    h, states = torch.zeros_like(b[..., 0]), []
    for n in range(b.shape[-1]):
        h = a[..., n] * h + b[..., n]
        states.append(h)
    return torch.stack(states, -1)


SCAN = Task(
    "linear recurrence",
    "scans",
    once(recurrence),
    recurrence,
    lambda dtype, g: [uniform(g, dtype, 6, 16, 40, low=0.7, high=0.999), normal(g, dtype, 6, 16, 40)],
    backward=True,
)


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1)).tril() @ v


def by_state(q: Tensor, k: Tensor, v: Tensor, size: int = 8, own: int = 0) -> Tensor:
    """Chunks, with the sum of keys times values before each."""
    state, done = k[..., :1, :].transpose(-2, -1) @ v[..., :1, :] * 0, []
    for a, b, c in zip(tiles(q, size, -2), tiles(k, size, -2), tiles(v, size, -2), strict=True):
        done.append(a @ state + (a @ b.transpose(-2, -1)).tril(own) @ c)
        state = state + b.transpose(-2, -1) @ c
    return torch.cat(done, -2)


LINEAR = Task(
    "linear attention",
    "scans",
    once(by_state),
    linear_attention,
    lambda dtype, g: [normal(g, dtype, 2, 2, 32, 8) for _ in range(3)],
    backward=True,
)
