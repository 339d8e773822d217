"""Optimisers: Adam, momentum, Lion, master weights, averages, clipping, loss scale: open entries."""

from __future__ import annotations

import torch

from cases.kernels.entry import BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import normal, state
from cases.kernels.parts.optimisers import (
    ADAM,
    CLIP,
    MASTER,
    MOMENTUM,
    UNSCALE,
    N,
    Step,
    Tensor,
    adamw,
    clip,
    kernel,
    moments,
    momentum,
    unscaled,
    with_master,
)
from cases.kernels.rounding import stepwise, tiles, toward_zero, up


def fused(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int) -> Step:
    """By lerp, fused multiply-adds, and the corrections folded into the step size, as Apex's."""
    m, v = torch.lerp(m, g, 0.1), torch.addcmul(v * 0.999, g, g, value=0.001)
    size = 1e-3 / (1 - 0.9**step)
    return p - 1e-3 * 0.1 * p - size * (m / (v.sqrt() / (1 - 0.999**step) ** 0.5 + 1e-8)), m, v


def average(shadow: Tensor, p: Tensor, decay: float) -> Tensor:
    return decay * shadow + (1 - decay) * p


EMA = Task(
    "moving average",
    "optimisers",
    lambda s, p, d: torch.lerp(s, up(p), 1 - d),
    average,
    lambda dtype, g: [normal(g, state(dtype), N), normal(g, dtype, N), 0.9999],
)


ENTRIES: tuple[Entry, ...] = (
    ADAM.healthy("in float32"),
    ADAM.healthy("corrections folded in", kernel(fused)),
    ADAM.fault(
        "16-bit moments",
        "keeps the moments in bfloat16",
        kernel(lambda p, g, m, v, t: (adamw(p, g, m, v, t)[0], *(stepwise(BF16)(x) for x in moments(g, m, v)))),
    ),
    ADAM.fault(
        "no bias correction",
        "does not correct the moments' bias",
        kernel(lambda p, g, m, v, t: adamw(p, g, m, v, 10**9)),
    ),
    ADAM.fault("step from 0", "counts steps from 0", kernel(lambda p, g, m, v, t: adamw(p, g, m, v, t - 1))),
    ADAM.fault(
        "L2 for decay",
        "adds the decay to the gradient",
        kernel(lambda p, g, m, v, t: (adamw(p, g + 0.1 * p, m, v, t)[0] + 1e-4 * p, *moments(g + 0.1 * p, m, v))),
    ),
    ADAM.fault(
        "decay after the step",
        "decays the new parameters by the whole weight decay",
        kernel(lambda p, g, m, v, t: (adamw(p, g, m, v, t)[0] * (1 - 0.1), *moments(g, m, v))),
    ),
    ADAM.fault(
        "second moment of the first",
        "squares the first moment",
        kernel(lambda p, g, m, v, t: (*adamw(p, g, m, v, t)[:2], 0.999 * v + 0.001 * m * m)),
    ),
    ADAM.fault(
        "stale first moment",
        "does not write the first moment back",
        kernel(lambda p, g, m, v, t: (adamw(p, g, m, v, t)[0], m + 0, moments(g, m, v)[1])),
    ),
    ADAM.fault(
        "last block",
        "leaves the last 56 parameters as they were",
        kernel(lambda p, g, m, v, t: (torch.cat([adamw(p, g, m, v, t)[0][:-56], p[-56:]]), *moments(g, m, v))),
    ),
    ADAM.fault(
        "beta2 of 0.99",
        "takes 0.99 for 0.999 in the correction",
        kernel(
            lambda p, g, m, v, t: (
                p * (1 - 1e-4)
                - 1e-3 * moments(g, m, v)[0] / (1 - 0.9**t) / ((moments(g, m, v)[1] / (1 - 0.99**t)).sqrt() + 1e-8),
                *moments(g, m, v),
            )
        ),
    ),
    ADAM.fault(
        "squares in float16",
        "gradients are squared in float16 and underflow",
        kernel(
            lambda p, g, m, v, t: (
                *adamw(p, g, m, v, t)[:2],
                0.999 * v + 0.001 * (g * 1e-2).half().square().to(v.dtype) * 1e4,
            )
        ),
        dtypes=(F16,),
    ),
    MASTER.fault(
        "from the model's",
        "steps from the model's 16-bit weights",
        lambda p, w, g, r: ((up(p) - r * up(g)).to(p.dtype), up(p) - r * up(g)),
    ),
    MASTER.fault(
        "rounded master",
        "rounds the master weights",
        lambda p, w, g, r: (with_master(p, w, g, r)[0], up(with_master(p, w, g, r)[0])),
    ),
    MOMENTUM.healthy("in float32"),
    MOMENTUM.fault(
        "dampened",
        "dampens by 0.1",
        lambda p, g, b: ((up(p) - 0.01 * (up(g) + 0.9 * (0.9 * b + 0.1 * up(g)))).to(p.dtype), 0.9 * b + 0.1 * up(g)),
    ),
    MOMENTUM.fault(
        "16-bit buffer",
        "keeps the buffer in bfloat16",
        lambda p, g, b: (momentum(up(p), up(g), b)[0].to(p.dtype), stepwise(BF16)(0.9 * b + up(g))),
    ),
    EMA.healthy("lerp"),
    EMA.fault("16-bit average", "keeps the average in bfloat16", lambda s, p, d: stepwise(BF16)(average(s, up(p), d))),
    EMA.fault("decay of bfloat16", "0.9999 is 1 in bfloat16", lambda s, p, d: average(s, up(p), 1.0)),
    EMA.fault("weights swapped", "swaps both weights", lambda s, p, d: average(s, up(p), 1 - d)),
    CLIP.healthy(
        "squares in tiles",
        clip(lambda x, y: torch.stack([t.square().sum() for t in (*tiles(x, 512), *tiles(y, 512))]).sum().sqrt()),
    ),
    CLIP.fault(
        "last 2,000 terms lost",
        "the norm leaves the last 2,000 out",
        clip(lambda x, y: torch.hypot(x[:-2000].norm(), y.norm())),
    ),
    CLIP.fault("norms added", "adds the tensors' norms", clip(lambda x, y: x.norm() + y.norm())),
    CLIP.fault(
        "always scaled",
        "scales small gradients up",
        clip(None, lambda limit, norm: limit / (norm + 1e-6)),
        inputs=lambda dtype, g: [normal(g, dtype, 4000, scale=1e-3), normal(g, dtype, 200, scale=3e-3), 1.0],
    ),
    UNSCALE.fault("not unscaled", "gives the scaled gradients", lambda g, s: (g + 0, unscaled(g, s)[1])),
    UNSCALE.fault(
        "overflow not seen",
        "looks for NaN, not for inf",
        lambda g, s: (g / s, torch.isnan(g).any()),
        dtypes=(F32, BF16),
        inputs=lambda dtype, g: [torch.cat([normal(g, dtype, N), torch.tensor([torch.inf]).to(dtype)]), 1024.0],
    ),
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
