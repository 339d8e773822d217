"""Rotary embeddings and position tables: open entries."""

from __future__ import annotations

import torch

from cases.kernels import defects
from cases.kernels.entry import ACCELERATOR, BF16, F16, NARROW, Entry
from cases.kernels.parts.rope import NARROW_TABLES, ROPE, TABLES, Tensor, rope, tables, turned
from cases.kernels.rounding import after, once, stepwise, toward_zero, with_gradient


def by_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Each half by itself, with fused multiply-adds."""
    a, b = x.chunk(2, -1)
    c, s = cos[..., :16], sin[..., :16]
    return torch.cat([torch.addcmul(a * c, b, -s), torch.addcmul(b * c, a, s)], -1)


ENTRIES: tuple[Entry, ...] = (
    ROPE.healthy("in float32"),
    ROPE.healthy("half by half", once(by_pairs), backward=False),
    ROPE.healthy(
        "own backward",
        with_gradient(rope, lambda g, x, c, s: (g * c - turned(g * s), (g * x).sum(0), (g * turned(x)).sum(0))),
    ),
    NARROW_TABLES.healthy("steps in 16 bit", rope, dtypes=NARROW, devices=ACCELERATOR),
    NARROW_TABLES.fault(
        "neighbours",
        "turns neighbours in place of halves",
        once(lambda x, c, s: x * c + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * s),
    ),
    ROPE.fault("other direction", "turns backwards", once(lambda x, c, s: rope(x, c, -s))),
    ROPE.fault("position one off", "positions start at 1", once(lambda x, c, s: rope(x, c.roll(-1, 0), s.roll(-1, 0)))),
    ROPE.fault("last position not written", "the last position is zero", after(ROPE.kernel, defects.last_row_zero)),
    ROPE.wrong_gradient(
        "gradient turned forwards",
        "the backward turns the gradient forwards",
        with_gradient(rope, lambda g, x, c, s: (rope(g, c, s), (g * x).sum(0), (g * turned(x)).sum(0))),
    ),
    ROPE.wrong_gradient(
        "gradient by 16-bit tables",
        "the backward has bfloat16 tables",
        with_gradient(
            rope,
            lambda g, x, c, s: (
                g * stepwise(BF16)(c) - turned(g * stepwise(BF16)(s)),
                (g * x).sum(0),
                (g * turned(x)).sum(0),
            ),
        ),
    ),
    TABLES.healthy("in float32"),
    TABLES.fault(
        "bfloat16 positions", "positions beyond 256 are rounded to bfloat16", lambda p, i: tables(stepwise(BF16)(p), i)
    ),
    TABLES.fault(
        "float16 angles",
        "angles are rounded to float16",
        lambda p, i: tuple(f(stepwise(F16)(p[:, None] * i)) for f in (torch.cos, torch.sin)),
    ),
    TABLES.fault("sine for cosine", "gives sine and cosine", lambda p, i: tables(p, i)[::-1]),
    TABLES.fault(
        "fast sine",
        "reduces the angle by a 16-bit 2 pi",
        lambda p, i: tuple(f(torch.remainder(p[:, None] * i, 6.28125)) for f in (torch.cos, torch.sin)),
    ),
    NARROW_TABLES.healthy("in float32"),
    ROPE.fault(
        "16-bit tables",
        "rounds the float32 tables to the tensor's dtype",
        lambda x, c, s: once(rope)(x, c.to(x.dtype), s.to(x.dtype)),
        dtypes=NARROW,
    ),
    ROPE.fault("halves swapped", "the output's halves are swapped", after(ROPE.kernel, defects.swapped_halves)),
    ROPE.fault(
        "second half not turned",
        "only the first half is turned",
        once(lambda x, c, s: torch.cat([rope(x, c, s)[..., :16], x[..., 16:]], -1)),
    ),
    ROPE.fault("truncated", "cuts where it should round", once(rope, toward_zero), dtypes=NARROW),
    TABLES.healthy("outer product", lambda p, i: (torch.outer(p, i).cos(), torch.outer(p, i).sin())),
    TABLES.fault("bfloat16 frequencies", "frequencies are bfloat16", lambda p, i: tables(p, stepwise(BF16)(i))),
)
