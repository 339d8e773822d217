"""Reductions: sums, means, norms, variance, log-sum-exp, extremes: open entries."""

from __future__ import annotations

import torch

from cases.kernels.entry import BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.parts.reductions import LSE, MEAN, NORM, ROWS, SUM, VAR, Tensor, pairwise, smaller
from cases.kernels.rounding import added_in, once, stepwise, toward_zero, with_gradient


def lanes(x: Tensor, count: int = 1000) -> Tensor:
    """Lanes side by side, each in order, then together."""
    total = torch.zeros(count, dtype=x.dtype)
    for row in x.reshape(-1, count):
        total = total + row
    return pairwise(total)


def kahan(x: Tensor, count: int = 1000) -> Tensor:
    total, rest = torch.zeros(count, dtype=x.dtype), torch.zeros(count, dtype=x.dtype)
    for row in x.reshape(-1, count):
        term = row - rest
        new = total + term
        total, rest = new, (new - total) - term
    return pairwise(total)


AMAX = Task(
    "largest and where",
    "reductions",
    lambda x, d: tuple(torch.max(x, d)),
    lambda x, d: tuple(torch.max(x, d)),
    lambda dtype, g: [(integers(g, 50, 40, 300) - 60).to(dtype), -1],
    "Torch.max",
)


ENTRIES: tuple[Entry, ...] = (
    SUM.healthy("pairwise"),
    SUM.healthy("a thousand lanes", once(lanes)),
    SUM.healthy("from behind, in 64 lanes", once(lambda x: lanes(x.flip(0), 64 * 125))),
    SUM.healthy("Kahan", once(kahan)),
    SUM.fault("last block lost", "leaves the last 4,096 out", once(lambda x: x[:-4096].sum()), inputs=smaller),
    SUM.fault(
        "16-bit lanes",
        "adds up in the tensor's dtype",
        lambda x: once(lambda y: added_in(x.dtype, y.view(1000, 100)).sum())(x),
        dtypes=NARROW,
        inputs=smaller,
    ),
    SUM.fault(
        "inf of the wrong sign",
        "gives -inf where the sum is inf",
        once(lambda x: -x.sum()),
        inputs=lambda dtype, g: [torch.cat([normal(g, dtype, 100), torch.tensor([torch.inf]).to(dtype)])],
    ),
    ROWS.fault("other dimension", "sums the columns, cut to size", once(lambda x, d: x.sum(0)[:40])),
    ROWS.fault("last tile lost", "leaves the ragged last tile out", once(lambda x, d: x[:, :256].sum(-1))),
    ROWS.fault("truncated", "cuts where it should round", once(lambda x, d: x.sum(-1), toward_zero), dtypes=NARROW),
    ROWS.fault("factor 1.004", "is 0.4 % too large", once(lambda x, d: x.sum(-1) * 1.004)),
    MEAN.fault(
        "float16 sum",
        "the sum overflows in float16",
        once(lambda x, d: stepwise(F16)(x.sum(-1)) / 300),
        inputs=lambda dtype, g: [uniform(g, dtype, 40, 300, high=1000.0), -1],
    ),
    MEAN.fault("by 299", "divides by N - 1", once(lambda x, d: x.sum(-1) / 299)),
    MEAN.fault(
        "mean of uneven blocks",
        "takes the mean of the means of 256 and 44",
        once(lambda x, d: (x[:, :256].mean(-1) + x[:, 256:].mean(-1)) / 2),
    ),
    MEAN.wrong_gradient(
        "gradient of the sum",
        "the gradient is not divided",
        with_gradient(lambda x, d: x.mean(-1), lambda g, x, d: (g[:, None].expand(40, 300), None)),
    ),
    VAR.healthy("two passes"),
    VAR.fault("deviation", "gives the root", once(lambda x, d: x.std(-1))),
    VAR.fault(
        "one pass",
        "takes the mean's square from that of the squares, beside a mean of 3,000",
        once(lambda x, d: (x.square().mean(-1) - x.mean(-1).square()) * 300 / 299),
        dtypes=(F32,),
        inputs=lambda dtype, g: [normal(g, dtype, 40, 300, mean=3000.0), -1],
    ),
    VAR.fault(
        "16-bit mean",
        "rounds the mean to bfloat16",
        once(lambda x, d: (x - stepwise(BF16)(x.mean(-1, True))).square().sum(-1) / 299),
        inputs=lambda dtype, g: [normal(g, dtype, 40, 300, mean=200.0), -1],
    ),
    NORM.healthy("root of the squares"),
    NORM.fault("last 2,000 lost", "leaves the last 2,000 of 50,000 out", once(lambda x: x[:-2000].norm())),
    NORM.fault("sum of magnitudes", "is the 1-norm", once(lambda x: x.abs().sum())),
    NORM.fault(
        "squares in float16",
        "squares overflow in float16",
        lambda x: x.square().sum(dtype=torch.float32).sqrt().to(x.dtype),
        dtypes=(F16,),
        inputs=lambda dtype, g: [normal(g, dtype, 5000, scale=100.0)],
    ),
    LSE.healthy("tiles"),
    LSE.fault(
        "no maximum",
        "overflows",
        once(lambda x, d: x.exp().sum(-1).log()),
        inputs=lambda dtype, g: [normal(g, dtype, 40, 300, scale=60.0), -1],
    ),
    LSE.fault("largest", "gives the maximum", once(lambda x, d: x.amax(-1))),
    SUM.fault("block added twice", "adds 256 elements twice", once(lambda x: x.sum() + x[:256].sum()), inputs=smaller),
    ROWS.healthy("tiles"),
    ROWS.fault("padding of one", "the padded 20 elements are ones", once(lambda x, d: x.sum(-1) + 20)),
    ROWS.wrong_gradient(
        "gradient of the mean",
        "the gradient is divided by the count",
        with_gradient(lambda x, d: x.sum(-1), lambda g, x, d: ((g / 300)[:, None].expand(40, 300), None)),
    ),
    MEAN.healthy("divided first"),
    VAR.healthy(
        "shifted by the first element",
        once(lambda x, d: ((x - x[:, :1]).square().sum(-1) - (x - x[:, :1]).sum(-1).square() / 300) / 299),
        dtypes=NARROW,
    ),
    VAR.fault("biased", "divides by N", once(lambda x, d: x.var(-1, correction=0))),
    NORM.fault(
        "small ones flushed",
        "squares of float16 are zero",
        lambda x: x.half().square().float().sum().sqrt().to(x.dtype),
        inputs=lambda dtype, g: [normal(g, dtype, 5000, scale=1e-4)],
    ),
    LSE.fault("log2", "takes the binary logarithm", once(lambda x, d: x.logsumexp(-1) / 0.6931471805599453)),
    AMAX.healthy("the last of equals", lambda x, d: (x.amax(-1), 299 - x.flip(-1).argmax(-1)), loose=True),
    AMAX.fault(
        "begins at 0",
        "begins with 0, so that negative maxima are lost",
        lambda x, d: (x.amax(-1).clamp_min(0), x.argmax(-1)),
    ),
    AMAX.fault("index one off", "counts from 1", lambda x, d: (x.amax(-1), x.argmax(-1) + 1)),
    AMAX.fault(
        "of the magnitudes",
        "compares magnitudes",
        lambda x, d: (x.gather(-1, x.abs().argmax(-1, True))[:, 0], x.abs().argmax(-1)),
    ),
    AMAX.fault(
        "index in the tile", "gives the index within a tile of 64", lambda x, d: (x.amax(-1), x.argmax(-1) % 64)
    ),
)
