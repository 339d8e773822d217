"""Random numbers: dropout, normal, uniform, Bernoulli, multinomial, exponential: open entries."""

from __future__ import annotations

import math
from typing import Any

import torch

from cases.kernels.entry import F16, F32, Entry
from cases.kernels.parts.random import (
    BERNOULLI,
    DROPOUT,
    EXPONENTIAL,
    MULTINOMIAL,
    NORMAL,
    UNIFORM,
    Tensor,
    dropout,
    filled,
    masked,
    uniforms,
)
from cases.kernels.rounding import up


class Redrawn(torch.autograd.Function):
    """Its backward draws a mask of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.p = p
        return dropout(x, p)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        return dropout(g, ctx.p), None


class Unscaled(torch.autograd.Function):
    """Its backward does not rescale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.kept = uniforms(*x.shape) >= p
        return masked(x, ctx.kept, 1 / (1 - p))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        return g * ctx.kept, None


ENTRIES: tuple[Entry, ...] = (
    DROPOUT.healthy("by uniform numbers"),
    DROPOUT.healthy(
        "by bytes", lambda x, p: masked(x, torch.randint(0, 65536, x.shape) >= int(p * 65536), 1 / (1 - p))
    ),
    DROPOUT.fault("keeps p", "keeps with probability p", lambda x, p: masked(x, uniforms(*x.shape) < p, 1 / (1 - p))),
    DROPOUT.fault(
        "one mask for all rows", "draws one row of the mask", lambda x, p: masked(x, uniforms(300) >= p, 1 / (1 - p))
    ),
    DROPOUT.fault("no rescaling", "does not divide by 1 - p", lambda x, p: masked(x, uniforms(*x.shape) >= p, 1.0)),
    DROPOUT.fault("rescaled by p", "divides by p", lambda x, p: masked(x, uniforms(*x.shape) >= p, 1 / p)),
    DROPOUT.fault("identity", "drops nothing", lambda x, p: x + 0),
    DROPOUT.fault(
        "factor of 1.25 in the dropped",
        "divides by 1 - p twice",
        lambda x, p: masked(x, uniforms(*x.shape) >= p, 1 / (1 - p) ** 2),
    ),
    DROPOUT.wrong_gradient("new mask in the backward", "the backward draws another mask", Redrawn.apply),
    DROPOUT.wrong_gradient("gradient not rescaled", "the backward does not divide by 1 - p", Unscaled.apply),
    NORMAL.healthy(
        "by the inverse",
        filled(lambda n: torch.special.ndtri(torch.rand(n, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)).float()),
    ),
    NORMAL.fault("clamped at 2.5", "cuts at 2.5 sigma", filled(lambda n: torch.randn(n).clamp(-2.5, 2.5))),
    NORMAL.fault("3 % too wide", "has a deviation of 1.03", filled(lambda n: torch.randn(n) * 1.03)),
    NORMAL.fault("half repeated", "the second half repeats the first", filled(lambda n: torch.randn(n // 2).repeat(2))),
    NORMAL.fault("positive", "gives magnitudes", filled(lambda n: torch.randn(n).abs())),
    NORMAL.fault(
        "256 values", "has 256 values", filled(lambda n: torch.special.ndtri((torch.randint(0, 256, (n,)) + 0.5) / 256))
    ),
    NORMAL.fault("uniform", "is uniform with that deviation", filled(lambda n: (torch.rand(n) * 2 - 1) * math.sqrt(3))),
    UNIFORM.fault(
        "other width",
        "takes the upper end for the width",
        lambda x, low, high: x.copy_(low + high * torch.rand(x.shape)),
    ),
    UNIFORM.fault(
        "256 values",
        "has 256 values",
        lambda x, low, high: x.copy_(low + (high - low) * torch.randint(0, 256, x.shape) / 256),
        dtypes=(F32, F16),
    ),
    UNIFORM.fault(
        "squared", "is denser below", lambda x, low, high: x.copy_(low + (high - low) * torch.rand(x.shape) ** 1.05)
    ),
    UNIFORM.fault(
        "sequence",
        "steps through the range in order",
        lambda x, low, high: x.copy_(low + (high - low) * torch.arange(x.numel()) / x.numel()),
    ),
    UNIFORM.fault(
        "upper tenth missing",
        "ends at nine tenths",
        lambda x, low, high: x.copy_(low + (high - low) * 0.9 * torch.rand(x.shape)),
    ),
    BERNOULLI.healthy("by comparison"),
    BERNOULLI.fault("fair", "is 1 with one half", lambda p: (torch.rand(p.shape) < 0.5).to(p.dtype)),
    BERNOULLI.fault(
        "p of the mean", "takes the mean for all", lambda p: (torch.rand(p.shape) < up(p).mean()).to(p.dtype)
    ),
    BERNOULLI.fault("rounded", "rounds p", lambda p: up(p).round().to(p.dtype)),
    MULTINOMIAL.healthy("by the inverse"),
    MULTINOMIAL.healthy("Gumbel", lambda p, n, again: (up(p).log() - (-torch.rand(n, len(p)).log()).log()).argmax(-1)),
    MULTINOMIAL.fault("uniform", "ignores the weights", lambda p, n, again: torch.randint(0, len(p), (n,))),
    EXPONENTIAL.fault(
        "mean for rate", "takes the rate for the mean", lambda x, rate: x.copy_(-(1 - torch.rand(x.shape)).log() * rate)
    ),
    EXPONENTIAL.fault(
        "tail cut", "ends at 4 means", lambda x, rate: x.copy_((-(1 - torch.rand(x.shape)).log()).clamp_max(4) / rate)
    ),
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
