"""Attention: flash, grouped queries, causal, sliding window, masks, ALiBi: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import once

Tensor = torch.Tensor


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """In one go; mask is added to the scores."""
    scores = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def causal_mask(n: int, m: int, late: int = 0) -> Tensor:
    """-inf for what lies in the future; late: how many keys more a query sees."""
    return torch.full((n, m), -torch.inf).triu(1 + late + m - n)


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    block: int = 16,
    rescale: bool = True,
    p_step: Any = None,
    o_step: Any = None,
) -> Tensor:
    """Blocks of keys with a running maximum and sum; p_step rounds probabilities, o_step the accumulator."""
    scale = q.shape[-1] ** -0.5
    largest = torch.full_like(q[..., :1], -torch.inf)
    total, out = torch.zeros_like(largest), torch.zeros_like(q)
    for start in range(0, k.shape[-2], block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        scores = q @ keys.transpose(-2, -1) * scale
        scores = scores if mask is None else scores + mask[..., start : start + block]
        higher = torch.maximum(largest, scores.amax(-1, keepdim=True))
        safe = torch.where(higher == -torch.inf, torch.zeros_like(higher), higher)
        p, factor = torch.exp(scores - safe), torch.exp(largest - safe)
        total = total * factor + p.sum(-1, keepdim=True)
        out = (out * factor if rescale else out) + (p if p_step is None else p_step(p)) @ values
        out, largest = out if o_step is None else o_step(out), higher
    return out / total


def attention_gradient(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, delta: float = 1.0, scaled: bool = True
) -> tuple[Any, ...]:
    """FlashAttention-2's backward; delta weighs the rows' sums."""
    scale = q.shape[-1] ** -0.5
    p = torch.softmax(q @ k.transpose(-2, -1) * scale, -1)
    dp = g @ v.transpose(-2, -1)
    ds = p * (dp - delta * (g * (p @ v)).sum(-1, keepdim=True)) * (scale if scaled else 1.0)
    return ds @ k, ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ g, *(None for _ in rest)


def qkv(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 1, 3, 40, 32, scale=1.5) for _ in range(3)]


FULL = Task(
    "attention",
    "attention",
    once(plain),
    F.scaled_dot_product_attention,
    qkv,
    "Functional.scaled_dot_product_attention",
    backward=True,
)

CAUSAL = Task(
    "causal attention",
    "attention",
    once(lambda q, k, v, mask, p, causal: flash(q, k, v, causal_mask(40, 40))),
    F.scaled_dot_product_attention,
    lambda dtype, g: [*qkv(dtype, g), None, 0.0, True],
    "Functional.scaled_dot_product_attention",
    backward=True,
)
