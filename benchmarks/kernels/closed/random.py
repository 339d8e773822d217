"""Random numbers: dropout, normal, uniform, Bernoulli, multinomial, exponential: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import F32, Entry
from benchmarks.kernels.parts.random import (
    BERNOULLI,
    DROPOUT,
    EXPONENTIAL,
    MULTINOMIAL,
    NORMAL,
    UNIFORM,
    filled,
    masked,
    uniforms,
)
from benchmarks.kernels.rounding import up

ENTRIES: tuple[Entry, ...] = (
    DROPOUT.fault("p of 0.22", "drops 22 % for 20 %", lambda x, p: masked(x, uniforms(*x.shape) >= 0.22, 1 / (1 - p))),
    DROPOUT.fault(
        "pairs",
        "a pair of neighbours shares its draw",
        lambda x, p: masked(x, (uniforms(200, 150) >= p).repeat_interleave(2, 1), 1 / (1 - p)),
    ),
    DROPOUT.fault(
        "last row kept",
        "the last rows keep all",
        lambda x, p: masked(x, (uniforms(*x.shape) >= p) | (torch.arange(200) >= 190)[:, None], 1 / (1 - p)),
    ),
    NORMAL.healthy("Box and Muller"),
    NORMAL.fault(
        "sum of 12 uniforms", "adds 12 uniform numbers, less 6", filled(lambda n: torch.rand(12, n).sum(0) - 6)
    ),
    NORMAL.fault("mean off by 0.03", "is 0.03 sigma too large", filled(lambda n: torch.randn(n) + 0.03)),
    NORMAL.fault(
        "variance for deviation",
        "takes the variance for the deviation",
        lambda x, m, s: x.copy_(m + s * s * torch.randn(x.shape)),
    ),
    NORMAL.fault(
        "last block zero", "the last 500 are the mean", filled(lambda n: torch.randn(n) * (torch.arange(n) < n - 500))
    ),
    UNIFORM.healthy(
        "by 24 bits",
        lambda x, low, high: x.copy_(low + (high - low) * torch.randint(0, 1 << 24, x.shape) / (1 << 24)),
        dtypes=(F32,),
    ),
    BERNOULLI.fault("complement", "is 1 with 1 - p", lambda p: (torch.rand(p.shape) >= up(p)).to(p.dtype)),
    MULTINOMIAL.fault(
        "last class never",
        "never draws the last class",
        lambda p, n, again: torch.multinomial(p[:-1].float(), n, again),
    ),
    MULTINOMIAL.fault(
        "one class off", "gives the class after", lambda p, n, again: (torch.multinomial(p.float(), n, again) + 1) % 12
    ),
    MULTINOMIAL.fault(
        "weights squared", "squares the weights", lambda p, n, again: torch.multinomial(p.float() ** 2, n, again)
    ),
    EXPONENTIAL.healthy("by the logarithm"),
    EXPONENTIAL.fault(
        "log2", "takes the binary logarithm", lambda x, rate: x.copy_(-(1 - torch.rand(x.shape)).log2() / rate)
    ),
)
