"""Cross entropy: chunks, label smoothing, z-loss, fused with a linear layer: open entries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import BF16, Entry, Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.parts.cross_entropy import (
    ENTROPY,
    IGNORED,
    ROWS,
    Tensor,
    entropy,
    entropy_gradient,
    rows,
    rows_loss,
    streamed_lse,
)
from cases.kernels.rounding import added_in, once, stepwise, tiles, with_gradient


def weighted(x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    losses = (torch.logsumexp(x, -1) - x.gather(1, target[:, None])[:, 0]) * weight[target]
    return losses.sum() / weight[target].sum()


WEIGHTED = Task(
    "cross entropy with class weights",
    "softmax",
    once(weighted),
    F.cross_entropy,
    lambda dtype, g: [
        normal(g, dtype, 40, 20, scale=3.0),
        integers(g, 20, 40),
        uniform(g, dtype, 20, low=0.2, high=2.0),
    ],
    "Functional.cross_entropy",
)


def with_z(x: Tensor, target: Tensor, z: float) -> Tensor:
    return F.cross_entropy(x, target) + z * torch.logsumexp(x, -1).square().mean()


def z_gradient(g: Tensor, x: Tensor, target: Tensor, z: float) -> tuple[Any, ...]:
    lse = torch.logsumexp(x, -1, True)
    p = torch.exp(x - lse)
    gradient = (p * (1 + 2 * z * lse)).scatter_add(1, target[:, None], torch.full_like(lse, -1.0))
    return g * gradient / len(x), None, None


Z = Task(
    "cross entropy with z-loss",
    "softmax",
    once(with_z),
    with_z,
    lambda dtype, g: [normal(g, dtype, 32, 200, scale=3.0), integers(g, 200, 32), 1e-2],
    backward=True,
)


def head_loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x @ w.t(), target)


def head_gradient(g: Tensor, x: Tensor, w: Tensor, target: Tensor, chunk: int = 16) -> tuple[Any, ...]:
    """Chunk by chunk, as Liger makes it in the forward."""
    gx, gw = [], torch.zeros_like(w)
    for part, wanted in zip(tiles(x, chunk, 0), tiles(target, chunk, 0), strict=True):
        p = (torch.softmax(part @ w.t(), -1) - F.one_hot(wanted, len(w))) / len(x)
        gx.append(p @ w)
        gw = gw + p.t() @ part
    return g * torch.cat(gx), g * gw, None


HEAD = Task(
    "linear and cross entropy",
    "softmax",
    once(head_loss),
    head_loss,
    lambda dtype, g: [normal(g, dtype, 48, 64), normal(g, dtype, 100, 64, scale=0.2), integers(g, 100, 48)],
    backward=True,
)


ENTRIES: tuple[Entry, ...] = (
    ENTROPY.healthy("streamed over the vocabulary"),
    ENTROPY.healthy(
        "rows in chunks",
        once(
            lambda x, t, *r: (
                torch.stack(
                    [
                        rows_loss(a, b, r[-1], torch.logsumexp(a, -1)).sum()
                        for a, b in zip(tiles(x, 16, 0), tiles(t, 16, 0), strict=True)
                    ]
                ).sum()
                / (t != IGNORED).sum()
            )
        ),
    ),
    ENTROPY.fault(
        "mean over ignored rows",
        "divides by all rows",
        once(lambda x, t, *r: rows_loss(x, t, r[-1], streamed_lse(x)).sum() / len(t)),
    ),
    ROWS.fault("no label smoothing", "leaves label smoothing out", once(lambda x, t, *r: rows(x, t, *r[:-1], 0.0))),
    ROWS.fault(
        "smoothing among the others",
        "spreads the smoothing over V - 1 classes",
        once(lambda x, t, *r: rows(x, t, *r[:-1], r[-1] * 200 / 199)),
    ),
    ENTROPY.fault(
        "sum for mean", "gives the sum", once(lambda x, t, *r: rows_loss(x, t, r[-1], streamed_lse(x)).sum())
    ),
    ENTROPY.wrong_gradient(
        "gradient not divided",
        "the gradient is not divided by the rows",
        with_gradient(entropy, lambda g, x, t, *r: (entropy_gradient(g, x, t, *r)[0] * 32, None, *(None for _ in r))),
    ),
    ENTROPY.wrong_gradient(
        "gradient of ignored rows",
        "ignored rows get a gradient",
        with_gradient(
            entropy,
            lambda g, x, t, *r: (
                entropy_gradient(g, x, t, *r)[0] + g * (t == IGNORED)[:, None] * torch.softmax(x, -1) / 32,
                None,
                *(None for _ in r),
            ),
        ),
    ),
    WEIGHTED.healthy("in float32"),
    WEIGHTED.fault(
        "divided by the count",
        "divides by the rows in place of their weights",
        once(lambda x, t, w: weighted(x, t, w) * w[t].sum() / 40),
    ),
    Z.healthy("own backward", with_gradient(with_z, z_gradient)),
    Z.fault(
        "not squared",
        "adds the log-sum-exp in place of its square",
        once(lambda x, t, z: F.cross_entropy(x, t) + z * torch.logsumexp(x, -1).mean()),
    ),
    Z.wrong_gradient(
        "gradient without z",
        "the gradient leaves the z-loss out",
        with_gradient(with_z, lambda g, x, t, z: z_gradient(g, x, t, 0.0)),
    ),
    Z.wrong_gradient(
        "gradient with half of z",
        "the gradient lacks the square's factor 2",
        with_gradient(with_z, lambda g, x, t, z: z_gradient(g, x, t, z / 2)),
    ),
    HEAD.healthy("chunks, gradient in the forward", with_gradient(head_loss, head_gradient)),
    HEAD.fault(
        "mean of one chunk",
        "divides by the chunk's rows",
        once(
            lambda x, w, t: torch.stack(
                [head_loss(a, w, b) for a, b in zip(tiles(x, 44, 0), tiles(t, 44, 0), strict=True)]
            ).mean()
        ),
    ),
    HEAD.wrong_gradient(
        "weight gradient of the last chunk",
        "the weight's gradient is overwritten chunk by chunk",
        with_gradient(
            head_loss,
            lambda g, x, w, t: (head_gradient(g, x, w, t)[0], head_gradient(g, x[32:], w, t[32:])[1] / 3, None),
        ),
    ),
    HEAD.wrong_gradient(
        "float8 logits",
        "the gradient's probabilities go through float8_e4m3",
        with_gradient(
            head_loss,
            lambda g, x, w, t: (
                g * stepwise(torch.float8_e4m3fn)(torch.softmax(x @ w.t(), -1) - F.one_hot(t, 100)) @ w / 48,
                head_gradient(g, x, w, t)[1],
                None,
            ),
        ),
    ),
    ROWS.healthy("streamed over the vocabulary"),
    ENTROPY.healthy("gradient made in the forward", with_gradient(entropy, entropy_gradient)),
    ENTROPY.fault(
        "ignored rows count", "takes ignored rows for class 0", once(lambda x, t, *r: entropy(x, t.clamp_min(0), *r))
    ),
    ROWS.fault(
        "last chunk lost",
        "the last 8 of 200 logits are not in the sum",
        once(lambda x, t, *r: rows_loss(x, t, r[-1], streamed_lse(x[:, :192]))),
    ),
    ENTROPY.fault(
        "target one off",
        "takes the next class's logit",
        once(lambda x, t, *r: entropy(x, torch.where(t < 0, t, (t + 1) % 200), *r)),
    ),
    ROWS.fault(
        "16-bit log-sum-exp",
        "adds the exponentials up in the tensor's dtype",
        once(lambda x, t, *r: rows_loss(x, t, r[-1], added_in(BF16, x.exp().t()).log())),
        dtypes=(BF16,),
    ),
    ENTROPY.wrong_gradient(
        "gradient without smoothing",
        "the gradient leaves label smoothing out",
        with_gradient(entropy, lambda g, x, t, *r: entropy_gradient(g, x, t, *r[:-1], 0.0)),
    ),
    ENTROPY.wrong_gradient(
        "incoming gradient ignored",
        "takes the incoming gradient for 1",
        with_gradient(entropy, lambda g, x, t, *r: entropy_gradient(torch.ones_like(g), x, t, *r)),
    ),
)
