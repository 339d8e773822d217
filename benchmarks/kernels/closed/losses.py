"""Losses: squared, absolute, Huber, Kullback-Leibler, binary, cosine, contrastive: closed entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.kernels.entry import Entry
from benchmarks.kernels.parts.losses import BCE, COSINE, DPO, KL, dpo
from benchmarks.kernels.rounding import once, with_gradient

ENTRIES: tuple[Entry, ...] = (
    KL.healthy("tiles of the vocabulary"),
    KL.fault("mean of all", "divides by all elements", once(lambda q, p: F.kl_div(q, p, reduction="mean"))),
    KL.fault("cross entropy", "leaves the entropy of p out", once(lambda q, p: -(p * q).sum() / len(p))),
    KL.fault(
        "eps of 1e-3", "adds 1e-3 to p in the logarithm", once(lambda q, p: (p * ((p + 1e-3).log() - q)).sum() / len(p))
    ),
    BCE.healthy("log1p"),
    BCE.fault(
        "clamped",
        "clamps the logarithm at -10",
        once(lambda x, y: -(y * F.logsigmoid(x).clamp_min(-10) + (1 - y) * F.logsigmoid(-x).clamp_min(-10))),
    ),
    BCE.fault(
        "label flipped",
        "takes the label for its complement",
        once(lambda x, y: F.binary_cross_entropy_with_logits(x, 1 - y, reduction="none")),
    ),
    BCE.wrong_gradient(
        "gradient by the label's sign",
        "the gradient is sigmoid(x) (1 - y)",
        with_gradient(
            lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
            lambda g, x, y: (g * torch.sigmoid(x) * (1 - y), -g * x),
        ),
    ),
    COSINE.fault("dot product", "does not divide", once(lambda x, y: (x * y).sum(-1))),
    DPO.wrong_gradient(
        "gradient without beta",
        "the gradient lacks beta",
        with_gradient(
            dpo,
            lambda g, c, r, beta: (
                -g * torch.sigmoid(-beta * (c - r)) / 64,
                g * torch.sigmoid(-beta * (c - r)) / 64,
                None,
            ),
        ),
    ),
)
