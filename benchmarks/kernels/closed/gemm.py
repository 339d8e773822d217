"""Matrix products: split-K, epilogues, tensor cores, int8 weights, groups: closed entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.kernels import defects
from benchmarks.kernels.entry import F16, NARROW, Entry
from benchmarks.kernels.parts.gemm import GROUPED, INT8, LINEAR, MATMUL, WIDE, Tensor, grouped, split_k
from benchmarks.kernels.rounding import (
    added_in,
    after,
    once,
    stepwise,
    tiles,
    toward_zero,
    up,
    with_gradient,
)


def kahan(a: Tensor, b: Tensor) -> Tensor:
    total, rest = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype), torch.zeros((), dtype=a.dtype)
    for column, row in zip(a.t(), b, strict=True):
        term = column[:, None] * row - rest
        after_it = total + term
        total, rest = after_it, (after_it - total) - term
    return total


ENTRIES: tuple[Entry, ...] = (
    MATMUL.healthy("split-K of 8", once(split_k)),
    MATMUL.healthy("one k at a time", once(lambda a, b: split_k(a, b, 1)), backward=False),
    MATMUL.healthy("Kahan", once(kahan), backward=False),
    MATMUL.fault("zeros", "gives zeros", after(MATMUL.kernel, defects.zeros)),
    MATMUL.fault("last K tile lost", "K's ragged last tile of 8 is left out", once(lambda a, b: a[:, :192] @ b[:192])),
    MATMUL.fault("rows swapped", "two rows change places", after(MATMUL.kernel, defects.swapped_rows)),
    MATMUL.fault(
        "16-bit accumulation",
        "adds up in the tensors' dtype",
        lambda a, b: once(lambda a2, b2: added_in(a.dtype, a2.t()[:, :, None] * b2[:, None]))(a, b),
        dtypes=NARROW,
    ),
    MATMUL.fault("truncated", "cuts where it should round", once(torch.matmul, toward_zero), dtypes=NARROW),
    MATMUL.fault(
        "tile added twice", "one split's part is added twice", once(lambda a, b: a @ b + a[:, 40:48] @ b[40:48])
    ),
    MATMUL.wrong_gradient(
        "gradient of a by float8",
        "the gradient of a takes g in float8_e5m2",
        with_gradient(torch.matmul, lambda g, a, b: (stepwise(torch.float8_e5m2)(g) @ b.t(), a.t() @ g)),
    ),
    WIDE.fault(
        "partial sums in float16",
        "rounds split-K parts to float16",
        lambda a, b: torch.stack(
            [stepwise(F16)(up(x) @ up(y)) for x, y in zip(tiles(a, 25, 1), tiles(b, 25, 0), strict=True)]
        ).sum(0),
    ),
    LINEAR.wrong_gradient(
        "bias gradient by the mean",
        "the bias's gradient is the rows' mean",
        with_gradient(F.linear, lambda g, x, w, b: (g @ w, g.t() @ x, g.mean(0))),
    ),
    INT8.healthy("scale in the epilogue"),
    INT8.fault("no -128", "clamps at -127", once(lambda x, q, s: x @ q.clamp_min(-127).to(x.dtype).t() * s)),
    GROUPED.healthy("in float32"),
    GROUPED.fault(
        "groups in tiles",
        "a tile of 8 rows takes its first row's expert",
        once(lambda x, w, ends: grouped(x, w, (16, 16, 32, 48))),
    ),
    GROUPED.fault(
        "empty group skipped",
        "an empty group moves the experts up",
        once(lambda x, w, ends: grouped(x, w[[0, 2, 1, 2]], ends)),
    ),
)
