"""Reductions: sums, means, norms, variance, log-sum-exp, extremes: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import NARROW, Entry, Task
from benchmarks.kernels.making import integers, normal
from benchmarks.kernels.parts.reductions import LSE, MEAN, NORM, ROWS, SUM, VAR, smaller
from benchmarks.kernels.rounding import (
    once,
    with_gradient,
)

AMAX = Task(
    "largest and where",
    "reductions",
    lambda x, d: tuple(torch.max(x, d)),
    lambda x, d: tuple(torch.max(x, d)),
    lambda dtype, g: [(integers(g, 50, 40, 300) - 60).to(dtype), -1],
    "Torch.max",
)


ENTRIES: tuple[Entry, ...] = (
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
