"""Losses: squared, absolute, Huber, Kullback-Leibler, binary, cosine, contrastive: open entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from cases.kernels.entry import F32, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.parts.losses import BCE, COSINE, DPO, KL, Tensor, cosine, dpo, pair
from cases.kernels.rounding import added_in, once, tiles, with_gradient


def mean_of_tiles(x: Tensor) -> Tensor:
    return torch.stack([tile.sum() for tile in tiles(x.reshape(-1), 128)]).sum() / x.numel()


MSE = Task(
    "squared error",
    "losses",
    once(lambda x, y: mean_of_tiles((x - y).square())),
    F.mse_loss,
    pair,
    "Functional.mse_loss",
    backward=True,
)


HUBER = Task(
    "Huber",
    "losses",
    once(lambda x, y, r, d: torch.where((x - y).abs() <= d, 0.5 * (x - y).square(), d * ((x - y).abs() - 0.5 * d))),
    lambda x, y, r, d: F.huber_loss(x, y, reduction=r, delta=d),
    lambda dtype, g: [*pair(dtype, g), "none", 0.7],
    backward=True,
)


ENTRIES: tuple[Entry, ...] = (
    MSE.healthy("tiles in float32"),
    MSE.fault("halved", "takes half of the mean", once(lambda x, y: 0.5 * F.mse_loss(x, y))),
    MSE.fault("mean over the batch", "divides by the rows", once(lambda x, y: (x - y).square().sum() / 30)),
    MSE.fault(
        "added up in 16 bit",
        "adds the squares up in the tensors' dtype",
        lambda x, y: once(lambda a, b: added_in(x.dtype, (a - b).square().view(-1)) / a.numel())(x, y),
        dtypes=NARROW,
    ),
    MSE.fault(
        "expanded square",
        "x^2 - 2xy + y^2 cancels",
        once(lambda x, y: (x * x - 2 * x * y + y * y).mean()),
        dtypes=(F32,),
        inputs=lambda dtype, g: [normal(g, dtype, 30, 100, mean=100.0, scale=0.1) for _ in range(2)],
    ),
    MSE.wrong_gradient(
        "gradient without 2",
        "the gradient lacks the factor 2",
        with_gradient(F.mse_loss, lambda g, x, y: (g * (x - y) / x.numel(), g * (y - x) / x.numel())),
    ),
    MSE.wrong_gradient(
        "gradient of the target with the sign",
        "the target's gradient has the input's sign",
        with_gradient(F.mse_loss, lambda g, x, y: (2 * g * (x - y) / x.numel(), 2 * g * (x - y) / x.numel())),
    ),
    HUBER.healthy("in float32"),
    HUBER.fault("smooth L1", "divides by delta", once(lambda x, y, r, d: F.huber_loss(x, y, reduction=r, delta=d) / d)),
    HUBER.fault("delta of 1", "takes 1 for delta", once(lambda x, y, r, d: F.huber_loss(x, y, reduction=r))),
    HUBER.fault(
        "no half in the tail",
        "takes a whole delta away in the linear part",
        once(lambda x, y, r, d: torch.where((x - y).abs() <= d, 0.5 * (x - y).square(), d * ((x - y).abs() - d))),
    ),
    KL.fault(
        "other way round", "swaps both distributions", once(lambda q, p: (q.exp() * (q - p.log())).sum() / len(p))
    ),
    BCE.fault(
        "by the sigmoid",
        "takes the logarithm of a rounded sigmoid",
        once(lambda x, y: -(y * torch.log(torch.sigmoid(x)) + (1 - y) * torch.log(1 - torch.sigmoid(x)))),
        backward=False,
    ),
    COSINE.healthy("in float32"),
    COSINE.fault(
        "norms not multiplied", "divides by one norm", once(lambda x, y: (x * y).sum(-1) / x.square().sum(-1))
    ),
    COSINE.fault(
        "last tile lost in a norm",
        "one norm sums 96 of 100",
        once(lambda x, y: (x * y).sum(-1) / (x[:, :96].norm(dim=-1) * y.norm(dim=-1))),
    ),
    COSINE.wrong_gradient(
        "gradient of the direction alone",
        "the gradient leaves the norm's own out",
        with_gradient(
            cosine, lambda g, x, y: tuple((g / (x.norm(dim=-1) * y.norm(dim=-1)))[:, None] * other for other in (y, x))
        ),
    ),
    DPO.healthy("log1p"),
    DPO.fault("no beta", "leaves beta out", once(lambda c, r, beta: dpo(c, r, 1.0))),
    DPO.fault("sides swapped", "prefers the rejected", once(lambda c, r, beta: dpo(r, c, beta))),
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
