"""Softmax, log-softmax and cross entropy: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import NARROW, Entry
from benchmarks.kernels.making import normal
from benchmarks.kernels.parts.softmax import LOG, LOG2E, MASKED, SOFTMAX, Tensor, masked, softmax
from benchmarks.kernels.rounding import (
    once,
    toward_zero,
)


def polynomial_exp2(x: Tensor) -> Tensor:
    """2 ** x by its whole part and Cody's polynomial of the rest, as FlashAttention-4 does."""
    whole = torch.floor(x + 0.5)
    t = (x - whole) * 0.6931471805599453
    p = 1 + t * (1 + t * (1 / 2 + t * (1 / 6 + t * (1 / 24 + t * (1 / 120 + t * (1 / 720 + t / 5040))))))
    return torch.ldexp(p, whole.clamp(-126, 127).to(torch.int32))


def by_polynomial(x: Tensor, dim: int) -> Tensor:
    e = polynomial_exp2(((x - x.amax(dim, keepdim=True)) * LOG2E).clamp_min(-126))
    return e / e.sum(dim, keepdim=True)


ENTRIES: tuple[Entry, ...] = (
    SOFTMAX.healthy("exp by a polynomial", once(by_polynomial), dtypes=NARROW, backward=False, close=1e-6),
    SOFTMAX.fault(
        "overflow",
        "does not take the maximum away",
        once(lambda x, dim: torch.exp(x) / torch.exp(x).sum(dim, keepdim=True)),
        inputs=lambda dtype, g: [normal(g, dtype, 24, 300, scale=60.0), -1],
    ),
    SOFTMAX.fault(
        "last key not counted",
        "the sum ends one key early",
        once(lambda x, dim: softmax(x, dim) / (1 - softmax(x, dim)[..., -1:])),
    ),
    SOFTMAX.fault("truncated", "cuts where it should round", once(softmax, toward_zero), dtypes=NARROW),
    MASKED.healthy("fused"),
    MASKED.fault("mask of -10", "masks by adding -10", once(lambda x, mask: torch.softmax(x - 10 * mask, -1))),
    MASKED.fault("mask one key off", "the mask is one key off", once(lambda x, mask: masked(x, mask.roll(1, -1)))),
    LOG.healthy("in float32"),
    LOG.fault(
        "log of the softmax",
        "takes the logarithm of probabilities that underflow",
        once(lambda x, dim: torch.log(softmax(x, dim))),
        inputs=lambda dtype, g: [normal(g, dtype, 24, 300, scale=60.0), -1],
    ),
    LOG.fault(
        "log of softmax + 1e-6",
        "adds 1e-6 before the logarithm",
        once(lambda x, dim: torch.log(softmax(x, dim) + 1e-6)),
    ),
    LOG.fault(
        "maximum forgotten",
        "does not add the maximum to the log-sum-exp",
        once(lambda x, dim: x - torch.exp(x - x.amax(-1, True)).sum(-1, True).log()),
    ),
    LOG.fault(
        "16-bit log-sum-exp",
        "rounds the log-sum-exp to the tensor's dtype",
        lambda x, dim: (x.float() - torch.logsumexp(x.float(), -1, True).to(x.dtype).float()).to(x.dtype),
        dtypes=NARROW,
    ),
)
