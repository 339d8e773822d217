"""Attention, the softmax of masked scores, and the rotary position embedding."""

from __future__ import annotations

import torch

from pytest_probe.errors import NoReference
from pytest_probe.references.arguments import at_least_float32, check_known, check_shapes, is_broadcast

# What masked scores are set to where a softmax is fused with its mask alone. exp(-10000 - x) is zero in float32, unless
# all of a row is masked.
MASKED = -10000.0


def band_mask(
    rows: int, columns: int, before: int, after: int, *, from_end: bool = False, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """A mask (rows, columns) of bool, True where a key is hidden: all but `before` keys before the query's own place,
    that place, and `after` keys behind it. from_end: the last query's own place is the last key, else the first one's
    is the first key."""
    shift = columns - rows if from_end else 0
    place = torch.arange(columns, device=device) - torch.arange(rows, device=device)[:, None] - shift
    return (place > after) | (place < -before)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float = 1.0,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """softmax(scale * (query key^T + bias)) value (Vaswani et al. 2017, arXiv:1706.03762), with grouped heads (Ainslie
    et al. 2023, arXiv:2305.13245).

    query: (B, N, Sq, D); key: (B, M, Sk, D) and value: (B, M, Sk, Dv), where M divides N: query head n takes head
    n // (N / M) of them. mask: bool, broadcast to (B, N, Sq, Sk), True hides; bias: broadcast to the same shape, added
    before the scale. Returns the result, (B, N, Sq, Dv), and of each row the largest score and the sum of
    exp(score - largest), (B, N, Sq, 1), both in float32 at least and without a gradient of their own.

    Raises NoReference for a row whose keys are all hidden: kernels differ in what they give for it.
    """
    heads, kept = query.shape[1], key.shape[1]
    check_shapes(
        bool(kept) and heads % kept == 0 and key.shape[:3] == value.shape[:3] and query.shape[-1] == key.shape[-1],
        f"query {list(query.shape)}, key {list(key.shape)}, value {list(value.shape)}",
        "(B, N, Sq, D), (B, M, Sk, D) and (B, M, Sk, Dv), where M divides N",
    )
    if kept != heads:
        key, value = (each.repeat_interleave(heads // kept, 1) for each in (key, value))
    scores = at_least_float32(query) @ at_least_float32(key).mT
    if bias is not None:
        scores = scores + bias
    scores = scores * scale
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    largest = scores.detach().amax(-1, keepdim=True)
    if mask is not None and torch.isneginf(largest).any():
        raise NoReference("the mask hides all keys of a query: what kernels give for such a row is not documented")
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    # The second product takes operands of the tensors' own dtype.
    product = at_least_float32(weights.to(value.dtype)) @ at_least_float32(value)
    return (product / total).to(query.dtype), largest, total.detach()


def scaled_masked_softmax(x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """softmax over the last dimension of scale * x, with -10000 where mask is True: a row that is masked as a whole
    has equal weights. x: (..., S); mask: bool, broadcast to x."""
    check_shapes(
        is_broadcast(mask, x.shape),
        f"x of shape {list(x.shape)}, a mask of shape {list(mask.shape)}",
        "a mask that is broadcast to x",
    )
    scores = (at_least_float32(x) * scale).masked_fill(mask.bool(), MASKED)
    return torch.softmax(scores, -1).to(x.dtype)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mode: str = "half") -> torch.Tensor:
    """x * cos + rotated(x) * sin (Su et al. 2021, arXiv:2104.09864).

    Pairs of places along the last dimension are turned: with mode "half" the pair of place i is i + D/2, with
    "interleave" pairs are neighbours. rotated(x) has (-second, first) in the places of (first, second).
    x: (..., D) with an even D; cos, sin: of a shape that is broadcast to x's.
    """
    check_known("rotary_mode", mode, ("half", "interleave"))
    check_shapes(
        bool(x.dim()) and x.shape[-1] % 2 == 0 and is_broadcast(cos, x.shape) and is_broadcast(sin, x.shape),
        f"x of shape {list(x.shape)}, angles of shapes {list(cos.shape)} and {list(sin.shape)}",
        "an even last dimension, and angles that are broadcast to x",
    )
    if mode == "half":
        first, second = x.chunk(2, -1)
        rotated = torch.cat((-second, first), -1)
    else:
        rotated = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return (x * cos + rotated * sin).to(x.dtype)
