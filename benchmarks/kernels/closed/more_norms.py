"""Norms: composed RMS, fused with a residual, group, batch with running statistics: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import ACCELERATOR, NARROW, Entry
from benchmarks.kernels.parts.more_norms import (
    ADD,
    BATCH,
    COMPOSED,
    EVALUATION,
    GROUP,
    Tensor,
    _applied,
    batch_own,
    composed_rms,
    fused_add,
    group,
)
from benchmarks.kernels.rounding import (
    once,
    stepwise,
    up,
)


def _updating(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor, e: float) -> Tensor:
    out = _applied(x, m, v, w, b, e)
    m.mul_(0.9).add_(0.1 * up(x).mean((0, 2, 3)))
    return out


ENTRIES: tuple[Entry, ...] = (
    COMPOSED.healthy("every step in 16 bit", composed_rms, dtypes=NARROW, devices=ACCELERATOR),
    ADD.fault(
        "normalised residual",
        "gives the normalised sum as the residual",
        once(lambda x, r, w, eps: (composed_rms(x + r, w, eps), composed_rms(x + r, w * 0 + 1, eps))),
    ),
    ADD.fault(
        "sum by way of float8",
        "the residual goes through float8_e4m3",
        once(lambda x, r, w, eps: fused_add(x, stepwise(torch.float8_e4m3fn)(r), w, eps)),
    ),
    GROUP.fault(
        "weight of the group",
        "takes one weight for a group",
        once(lambda x, n, w, b, eps: group(x, n, w.view(3, 4)[:, :1].expand(3, 4).reshape(12), b, eps)),
    ),
    GROUP.fault(
        "unbiased variance",
        "divides by N - 1",
        once(lambda x, n, w, b, eps: (group(x, n, w, b * 0, eps)) * (195 / 196) ** 0.5 + b[:, None, None]),
    ),
    GROUP.fault(
        "instance norm", "normalises each channel by itself", once(lambda x, n, w, b, eps: group(x, 12, w, b, eps))
    ),
    BATCH.healthy("with running statistics"),
    EVALUATION.healthy("by running statistics"),
    BATCH.fault("stale running statistics", "running statistics are not updated", batch_own),
    EVALUATION.fault(
        "changes running statistics",
        "updates running statistics in evaluation",
        lambda x, m, v, w, b, t, p, e: _updating(x, m, v, w, b, e),
    ),
)
