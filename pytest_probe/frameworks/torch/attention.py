"""PyTorch: attention as a fused kernel computes it, step by step: scores are scaled, not queries.

torch's own decomposition gives the attention weights where the backward expects the logarithm of their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

# What the CPU runs for attention without dropout; both are kernels of their own, without products inside.
FLASH_FORWARD: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

_Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Step = Callable[[torch.Tensor], torch.Tensor]


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def flash_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
    product: _Product = torch.matmul,
    step: _Step = _unchanged,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the logarithm of the sum of each row's weights."""
    key, value = of_each_head(query, key), of_each_head(query, value)
    scores = step(scaled_scores(query, key, causal, attn_mask, scale, product))
    total = torch.logsumexp(scores, -1)
    return product(step(softmax_weights(scores, total)), value), total


def flash_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    total: torch.Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
    product: _Product = torch.matmul,
    step: _Step = _unchanged,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value; the weights are computed again."""
    shared = query.shape[-3] // key.shape[-3]
    key, value = of_each_head(query, key), of_each_head(query, value)
    scores = step(scaled_scores(query, key, causal, attn_mask, scale, product))
    weights = step(softmax_weights(scores, total))
    of_weights = product(gradient, value.transpose(-2, -1))
    of_scores = step(weights * step(of_weights - (gradient * out).sum(-1, keepdim=True)))
    of_query = product(of_scores, key) * scale_of(query, scale)
    of_key = product(of_scores.transpose(-2, -1), query) * scale_of(query, scale)
    of_value = product(weights.transpose(-2, -1), gradient)
    # The heads that share a key add up.
    batch, length = key.shape[0], key.shape[-2]
    return of_query, *(each.reshape(batch, -1, shared, length, each.shape[-1]).sum(2) for each in (of_key, of_value))


def of_each_head(query: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Keys or values of each query's head, where several heads share one."""
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def scale_of(query: torch.Tensor, scale: float | None) -> float:
    """What scores are scaled by."""
    return float(query.shape[-1] ** -0.5) if scale is None else scale


def scaled_scores(
    query: torch.Tensor, key: torch.Tensor, causal: bool, mask: Any, scale: float | None, product: _Product
) -> torch.Tensor:
    """Scaled products of queries and keys, -inf where `causal` forbids, the mask added."""
    scores = product(query, key.transpose(-2, -1)) * scale_of(query, scale)
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores if mask is None else scores + mask


def softmax_weights(scores: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isneginf(scores), torch.zeros_like(scores), torch.exp(scores - total.unsqueeze(-1)))
