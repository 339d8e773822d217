"""PyTorch: attention as a fused kernel computes it, step by step: scores are scaled, not queries;
and as the CPU computes it in 16 bit, by blocks of queries and keys.

torch's own decomposition gives the attention weights where the backward expects the logarithm of their sum.
"""

from __future__ import annotations

import functools
import math
import platform
from collections.abc import Callable, Iterator
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


# How the CPU's 16-bit kernel cuts keys, and queries by their number, into blocks.
KEYS = 512
# From how many queries on, and how many a block has: the first that fits.
QUERIES = ((768, 256), (192, 64), (0, 32))


def flash_forward_on_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the CPU computes 16-bit tensors: powers are rounded before they weigh the values, and divided by their sum
    in the end."""
    key, value = (of_each_head(query, tensor) for tensor in (key, value))
    scores = scaled_scores(query, key, causal, attn_mask, scale, torch.matmul)
    made = []
    for low, high in _query_blocks(query):
        made.append(_rows(dtype, scores[..., low:high, :], value, high if causal else None))
    out, total = (torch.cat(parts, -2) for parts in zip(*made, strict=True))
    return out, total.squeeze(-1)


def _query_blocks(query: torch.Tensor) -> Iterator[tuple[int, int]]:
    """The first query of each block, and the end of a whole one: so many keys are seen, also by fewer queries."""
    count = query.shape[-2]
    rows = next(size for least, size in QUERIES if count >= least)
    return ((low, low + rows) for low in range(0, count, rows))


def _rows(
    dtype: torch.dtype, scores: torch.Tensor, value: torch.Tensor, seen: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """A block of queries, and the logarithm of the sum of their weights; none of them sees more than `seen` keys."""
    scores, value = scores[..., :seen], value[..., :seen, :]
    largest = scores.new_full((*scores.shape[:-1], 1), -math.inf)
    out, total = torch.zeros_like(scores[..., :1]), torch.zeros_like(largest)
    for left in range(0, value.shape[-2], KEYS):
        part, values = scores[..., left : left + KEYS], value[..., left : left + KEYS, :]
        # The kernel's online softmax: what came before is scaled down where a larger score comes.
        higher = torch.maximum(largest, part.amax(-1, keepdim=True))
        powers = torch.nan_to_num(_powers(part - higher))
        before = torch.nan_to_num((largest - higher).exp())
        out = out * before + powers.to(dtype).double() @ values
        total = total * before + powers.sum(-1, keepdim=True)
        largest = higher
    return torch.where(total == 0, 0.0, out / total), largest + total.log()


# A cubic for 2^f - 1 - f, 0 <= f < 1, of Malossi et al., "Fast exponential computation on SIMD architectures" (2015),
# table 3: added to an exponent, it is read as the bits of a float32. Off by up to 1 part in 10,000.
EXPONENT = (0.00010703434948458272, 0.30354260500649682, -0.22433836478672356, -0.079204240219773236)


def _powers(x: torch.Tensor) -> torch.Tensor:
    """exp, in whole vectors of the last dimension the processor's fast one."""
    exact = x.exp()
    whole = x.shape[-1] - x.shape[-1] % _lanes()
    if not whole or not _is_fast():
        return exact
    power = x[..., :whole] * math.log2(math.e)
    part = power - power.floor()
    power = power - (EXPONENT[0] + part * (EXPONENT[1] + part * (EXPONENT[2] + part * EXPONENT[3])))
    fast = torch.exp2(power.floor()) * (1 + power - power.floor())
    return torch.cat([torch.nan_to_num(fast), exact[..., whole:]], -1)


def _lanes() -> int:
    """How many float32 numbers a vector holds that torch's kernels are written for."""
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        return 16
    return 8 if platform.machine() in ("x86_64", "AMD64") else 4


@functools.cache
def _is_fast() -> bool:
    """Is the kernel built with the fast exp? It makes the exp of 0 5e-5 too small."""
    count = _lanes()
    zeros = torch.zeros(1, 1, count, 1, dtype=torch.bfloat16)
    _, total = FLASH_FORWARD(zeros, zeros, zeros)
    # A quarter of what the fast exp of 0 is off by: the exact one is off by a roundoff of float32.
    return bool((total.double() - math.log(count)).abs().max() > EXPONENT[0] / 4)


def flash_backward_on_cpu(
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
    dtype: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    """As the CPU computes 16-bit tensors: weights, and the gradients of scores, are rounded before the products that
    they enter, and so are the sums over blocks, and over the heads that share a key."""
    keys, values = (of_each_head(query, tensor) for tensor in (key, value))
    scores = scaled_scores(query, keys, causal, attn_mask, scale, torch.matmul)
    exact = softmax_weights(scores, total)
    slopes = (exact * (gradient @ values.mT - (gradient * out).sum(-1, keepdim=True))).to(dtype).double()
    weights = exact.to(dtype).double()
    factor, shared = scale_of(query, scale), query.shape[-3] // key.shape[-3]
    of_query, of_key, of_value = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    for head in range(shared):
        one = (..., slice(head, None, shared), slice(None), slice(None))
        for low, high in _query_blocks(query):
            for left in range(0, key.shape[-2], KEYS):
                here, there = slice(low, high), slice(left, left + KEYS)
                slope, weight = slopes[one][..., here, there], weights[one][..., here, there]
                for total_of, where, part in (
                    (of_value, there, weight.mT @ gradient[one][..., here, :]),
                    (of_query[one], here, slope @ key[..., there, :] * factor),
                    (of_key, there, slope.mT @ query[one][..., here, :] * factor),
                ):
                    total_of[..., where, :] = (total_of[..., where, :] + part).to(dtype)
    return of_query, of_key, of_value
