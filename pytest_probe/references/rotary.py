"""Rotary position embedding."""

from __future__ import annotations

import torch

from pytest_probe.references.arguments import check_known, check_shapes, is_broadcast


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
