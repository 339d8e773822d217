"""Optimisers: Adam, momentum, Lion, master weights, averages, clipping, loss scale: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import BF16, NARROW, Entry
from benchmarks.kernels.making import normal
from benchmarks.kernels.parts.optimisers import (
    ADAM,
    CLIP,
    MASTER,
    MOMENTUM,
    UNSCALE,
    adamw,
    clip,
    kernel,
    moments,
    unscaled,
    with_master,
)
from benchmarks.kernels.rounding import stepwise, toward_zero, up

ENTRIES: tuple[Entry, ...] = (
    ADAM.fault(
        "eps in the root",
        "adds eps before the root",
        kernel(
            lambda p, g, m, v, t: (
                p * (1 - 1e-4)
                - 1e-3 * moments(g, m, v)[0] / (1 - 0.9**t) / (moments(g, m, v)[1] / (1 - 0.999**t) + 1e-6).sqrt(),
                *moments(g, m, v),
            )
        ),
    ),
    ADAM.fault(
        "old moment",
        "steps by the moments from before",
        kernel(
            lambda p, g, m, v, t: (
                p * (1 - 1e-4) - 1e-3 * m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8),
                *moments(g, m, v),
            )
        ),
    ),
    ADAM.fault("parameters truncated", "cuts the new parameters", kernel(adamw, toward_zero), dtypes=NARROW),
    MASTER.healthy("in float32"),
    MASTER.fault(
        "model one step behind",
        "copies the master weights before the step",
        lambda p, w, g, r: (w.to(p.dtype), with_master(p, w, g, r)[1]),
    ),
    MASTER.fault(
        "truncated copy",
        "cuts the copy",
        lambda p, w, g, r: (toward_zero(with_master(p, w, g, r)[1], p.dtype), with_master(p, w, g, r)[1]),
    ),
    MOMENTUM.fault(
        "plain momentum",
        "is not Nesterov's",
        lambda p, g, b: ((up(p) - 0.01 * (0.9 * b + up(g))).to(p.dtype), 0.9 * b + up(g)),
    ),
    CLIP.healthy("norm of norms"),
    CLIP.fault("largest norm", "takes the larger norm", clip(lambda x, y: torch.maximum(x.norm(), y.norm()))),
    CLIP.fault("norm squared", "does not take the root", clip(lambda x, y: x.square().sum() + y.square().sum())),
    CLIP.fault(
        "16-bit norm", "rounds the norm to bfloat16", clip(lambda x, y: stepwise(BF16)(torch.hypot(x.norm(), y.norm())))
    ),
    CLIP.fault(
        "squares in float16",
        "squares overflow in float16",
        clip(lambda x, y: (x.half().square().to(x.dtype).sum() + y.half().square().to(y.dtype).sum()).sqrt()),
        inputs=lambda dtype, g: [normal(g, dtype, 4000, scale=150.0), normal(g, dtype, 200, scale=3.0), 1.0],
    ),
    UNSCALE.healthy("by the reciprocal"),
    UNSCALE.fault("twice", "divides twice", lambda g, s: (g / s / s, unscaled(g, s)[1])),
)
