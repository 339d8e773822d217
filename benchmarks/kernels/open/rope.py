"""Rotary embeddings and position tables: open entries."""

from __future__ import annotations

import torch

from benchmarks.kernels import defects
from benchmarks.kernels.entry import ACCELERATOR, BF16, F16, NARROW, Entry
from benchmarks.kernels.parts.rope import NARROW_TABLES, ROPE, TABLES, Tensor, rope, tables, turned
from benchmarks.kernels.rounding import after, once, stepwise, with_gradient


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
)
