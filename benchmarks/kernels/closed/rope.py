"""Rotary embeddings and position tables: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels import defects
from benchmarks.kernels.entry import BF16, NARROW, Entry
from benchmarks.kernels.parts.rope import NARROW_TABLES, ROPE, TABLES, rope, tables
from benchmarks.kernels.rounding import after, once, stepwise, toward_zero

ENTRIES: tuple[Entry, ...] = (
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
