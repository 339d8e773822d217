"""Softmax, log-softmax and cross entropy: open entries."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels import defects
from cases.kernels.entry import ACCELERATOR, BF16, F16, F32, NARROW, Entry
from cases.kernels.making import normal
from cases.kernels.parts.softmax import LOG, LOG2E, MASKED, SOFTMAX, Tensor, log_softmax, masked, softmax
from cases.kernels.rounding import (
    added_in,
    after,
    by_way_of,
    once,
    stepwise,
    tiles,
    toward_zero,
    ulp_up,
    with_gradient,
)


def online(x: Tensor, dim: int, block: int = 64, rescale: bool = True) -> Tensor:
    """In powers of two, block by block, with a running maximum."""
    wide = x * LOG2E
    largest = torch.full_like(wide[..., :1], -torch.inf)
    total = torch.zeros_like(largest)
    for tile in tiles(wide, block):
        higher = torch.maximum(largest, tile.amax(-1, keepdim=True))
        kept = total * torch.exp2(largest - higher) if rescale else total
        total = kept + torch.exp2(tile - higher).sum(-1, keepdim=True)
        largest = higher
    return torch.exp2(wide - largest) / total


def softmax_gradient(g: Tensor, x: Tensor, dim: int) -> tuple[Any, ...]:
    y = softmax(x, dim)
    return y * (g - (g * y).sum(dim, keepdim=True)), None


def softmax_of_rounded(x: Tensor, dim: int) -> Tensor:
    """The backward takes the rounded output, as frameworks do."""
    dtype = x.dtype

    def gradient(g: Tensor, x: Tensor, dim: int) -> tuple[Any, ...]:
        y = stepwise(dtype)(softmax(x, dim))
        return y * (g - (g * y).sum(dim, keepdim=True)), None

    return with_gradient(softmax, gradient)(x, dim)


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
    SOFTMAX.healthy("in float32"),
    SOFTMAX.healthy("online in blocks of 64", once(online)),
    SOFTMAX.healthy("online in blocks of 16", once(lambda x, dim: online(x, dim, 16))),
    SOFTMAX.healthy("own backward", with_gradient(softmax, softmax_gradient)),
    SOFTMAX.healthy("backward of the rounded output", softmax_of_rounded, dtypes=NARROW, devices=ACCELERATOR),
    SOFTMAX.fault("zeros", "gives zeros", after(SOFTMAX.kernel, defects.zeros)),
    SOFTMAX.fault(
        "NaN in the tail", "the last 20 elements are NaN", after(SOFTMAX.kernel, defects.tail(20, float("nan")))
    ),
    SOFTMAX.fault(
        "padding counted",
        "the sum has 20 padded keys of logit 0",
        once(lambda x, dim: torch.exp(x) / (torch.exp(x).sum(dim, keepdim=True) + 20)),
    ),
    SOFTMAX.fault("wrong dimension", "sums over the rows", once(lambda x, dim: softmax(x, 0))),
    SOFTMAX.fault(
        "sum not rescaled",
        "the running sum is not rescaled to a new maximum",
        once(lambda x, dim: online(x, dim, rescale=False)),
    ),
    SOFTMAX.fault(
        "base 2",
        "takes powers of two for those of e",
        once(
            lambda x, dim: (
                torch.exp2(x - x.amax(dim, keepdim=True)) / torch.exp2(x - x.amax(dim, keepdim=True)).sum(-1, True)
            )
        ),
    ),
    SOFTMAX.fault(
        "16-bit sum",
        "adds the denominator up in the tensor's dtype",
        lambda x, dim: (
            torch.exp(x.float() - x.float().amax(-1, True))
            / added_in(x.dtype, torch.exp(x.float() - x.float().amax(-1, True)).t())[:, None]
        ).to(x.dtype),
        dtypes=NARROW,
    ),
    SOFTMAX.fault("one ulp up", "rounds everything one step too high", once(softmax, ulp_up), dtypes=NARROW),
    SOFTMAX.fault("by way of float8", "goes through float8_e4m3", once(softmax, by_way_of(torch.float8_e4m3fn))),
    SOFTMAX.fault(
        "small ones flushed",
        "probabilities below 1e-4 are zero",
        once(lambda x, dim: torch.where(softmax(x, dim) < 1e-4, 0.0, softmax(x, dim))),
    ),
    SOFTMAX.fault(
        "16-bit exponent",
        "rounds x - max to bfloat16",
        once(lambda x, dim: softmax(stepwise(BF16)(x - x.amax(dim, True)), dim)),
        dtypes=(F32, F16),
    ),
    SOFTMAX.fault(
        "eps in the sum",
        "adds 1e-3 to the sum",
        once(
            lambda x, dim: torch.exp(x - x.amax(dim, True)) / (torch.exp(x - x.amax(dim, True)).sum(dim, True) + 1e-2)
        ),
    ),
    SOFTMAX.wrong_gradient(
        "gradient without its sum",
        "the gradient is y g alone",
        with_gradient(softmax, lambda g, x, dim: (softmax(x, dim) * g, None)),
    ),
    SOFTMAX.wrong_gradient(
        "gradient with a lost last tile",
        "the gradient's sum ends at 256 of 300",
        with_gradient(
            softmax, lambda g, x, dim: (softmax(x, dim) * (g - (g * softmax(x, dim))[..., :256].sum(dim, True)), None)
        ),
    ),
    MASKED.healthy("finite lowest value", once(lambda x, mask: torch.softmax(x.masked_fill(mask, -3e38), -1))),
    MASKED.fault(
        "mask after the softmax",
        "zeroes the masked ones without summing anew",
        once(lambda x, mask: torch.softmax(x, -1) * ~mask),
    ),
    MASKED.wrong_gradient(
        "gradient through the mask",
        "the gradient ignores the mask",
        with_gradient(masked, lambda g, x, mask: (softmax_gradient(g, x, -1)[0], None)),
    ),
    LOG.healthy(
        "by log-sum-exp of tiles",
        once(
            lambda x, dim: (
                x - torch.logsumexp(torch.stack([torch.logsumexp(t, -1) for t in tiles(x, 64)], -1), -1, True)
            )
        ),
    ),
    LOG.fault(
        "log2",
        "takes the binary logarithm of the sum",
        once(lambda x, dim: x - x.amax(-1, True) - torch.exp(x - x.amax(-1, True)).sum(-1, True).log2()),
    ),
    LOG.wrong_gradient(
        "gradient of a sum of one",
        "the gradient takes the incoming ones to sum to 1",
        with_gradient(log_softmax, lambda g, x, dim: (g - softmax(x, dim), None)),
    ),
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
