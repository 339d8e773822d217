"""Norms: composed RMS, fused with a residual, group, batch with running statistics: open entries."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import ACCELERATOR, NARROW, Entry
from cases.kernels.parts.more_norms import (
    ADD,
    BATCH,
    COMPOSED,
    EVALUATION,
    GROUP,
    Tensor,
    _applied,
    batch,
    batch_own,
    composed_rms,
    fused_add,
    group,
)
from cases.kernels.rounding import once, stepwise, up, with_gradient


def llama_rms(x: Tensor, w: Tensor, eps: float) -> Tensor:
    """Normalised in float32, rounded, then scaled in 16 bit."""
    wide = up(x)
    return w * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def vllm_add(x: Tensor, r: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum is rounded before it is normalised."""
    h = x + r
    return once(composed_rms)(h, w, eps), h


MIXED = torch.arange(12).view(4, 3).t().reshape(-1)


def _group_gradient(g: Tensor, x: Tensor, n: int, w: Tensor, b: Tensor, eps: float) -> tuple[Any, ...]:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
        found = torch.autograd.grad(group(leaves[0], n, leaves[1], b, eps), leaves, g)
    return found[0], None, found[1]


def _updating(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor, e: float) -> Tensor:
    out = _applied(x, m, v, w, b, e)
    m.mul_(0.9).add_(0.1 * up(x).mean((0, 2, 3)))
    return out


ENTRIES: tuple[Entry, ...] = (
    COMPOSED.healthy("fused"),
    COMPOSED.healthy("rounded before the weight", llama_rms, dtypes=NARROW, devices=ACCELERATOR),
    COMPOSED.fault(
        "weight of the next channel",
        "the weight is one channel off",
        once(lambda x, w, eps: composed_rms(x, w.roll(1), eps)),
    ),
    COMPOSED.fault(
        "1 % too large", "the root is 1 % too small", once(lambda x, w, eps: composed_rms(x, w, eps) * 1.01)
    ),
    ADD.healthy("the sum in float32"),
    ADD.healthy("the sum rounded first", vllm_add, dtypes=NARROW, devices=ACCELERATOR),
    ADD.fault(
        "residual not added to the norm",
        "normalises x alone",
        once(lambda x, r, w, eps: (composed_rms(x, w, eps), x + r)),
    ),
    ADD.fault(
        "residual not updated",
        "gives the old residual back",
        once(lambda x, r, w, eps: (composed_rms(x + r, w, eps), r + 0)),
    ),
    GROUP.healthy("two passes in float32"),
    GROUP.fault(
        "interleaved groups",
        "takes every third channel for a group",
        once(lambda x, n, w, b, eps: group(x[:, MIXED], n, w, b, eps)[:, MIXED.argsort()]),
    ),
    GROUP.fault(
        "one image for all",
        "takes the first image's statistics for all",
        once(lambda x, n, w, b, eps: torch.cat([group(x[:1], n, w, b, eps), x[1:] * 0 + group(x[:1], n, w, b, eps)])),
    ),
    GROUP.wrong_gradient(
        "bias gradient of one image",
        "the bias's gradient is the first image's",
        with_gradient(group, lambda g, x, n, w, b, eps: (*_group_gradient(g, x, n, w, b, eps), g[0].sum((1, 2)), None)),
    ),
    BATCH.fault(
        "biased running variance", "the running variance is the biased one", lambda *a: batch(*a, unbiased=1.0)
    ),
    BATCH.fault(
        "momentum the other way round",
        "keeps a tenth and takes nine",
        lambda x, m, v, w, b, t, p, e: batch(x, m, v, w, b, t, 1 - p, e),
    ),
    BATCH.fault(
        "running mean decays", "keeps 0.89 of the old statistics in place of 0.9", lambda *a: batch(*a, keep=0.99)
    ),
    BATCH.fault(
        "half of the batch",
        "statistics are those of the first half of the batch",
        lambda x, m, v, *a: torch.cat(
            [
                batch(x[:4], m, v, *a),
                _applied(x[4:], up(x[:4]).mean((0, 2, 3)), up(x[:4]).var((0, 2, 3)), a[0], a[1], a[-1]),
            ]
        ),
    ),
    EVALUATION.fault("batch statistics", "normalises by the batch in evaluation", batch_own),
    EVALUATION.fault(
        "deviation for variance",
        "takes the running variance for the deviation",
        lambda x, m, v, w, b, t, p, e: _applied(x, m, v * v, w, b, e),
    ),
    EVALUATION.fault("no eps", "leaves eps out", lambda x, m, v, w, b, t, p, e: _applied(x, m, v, w, b, 0.0)),
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
