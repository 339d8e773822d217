"""Mixture of experts: gating, dispatch, combination, balance: open entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, NARROW, Entry
from cases.kernels.parts.moe import (
    BALANCE,
    COMBINE,
    DISPATCH,
    GATE,
    TOPK,
    Tensor,
    balance,
    by_scatter,
    combine,
    dispatch,
    gate,
)
from cases.kernels.rounding import once, stepwise, up, with_gradient


def _highest(x: Tensor, k: int) -> tuple[Tensor, ...]:
    values, places = torch.sort(x.flip(-1), dim=-1, descending=True, stable=True)
    return values[:, :k], (x.shape[-1] - 1 - places)[:, :k]


ENTRIES: tuple[Entry, ...] = (
    GATE.healthy(
        "by sorting",
        once(
            lambda x, k: (
                torch.softmax(torch.sort(x, dim=-1, descending=True, stable=True)[0][:, :k], -1),
                torch.sort(x, dim=-1, descending=True, stable=True)[1][:, :k],
            )
        ),
    ),
    GATE.fault(
        "not renormalised",
        "leaves the probabilities as they were",
        once(lambda x, k: (torch.softmax(x, -1).topk(k)[0], gate(x, k)[1])),
    ),
    GATE.fault("smallest", "takes the smallest", once(lambda x, k: gate(-x, k))),
    GATE.fault(
        "second and third", "leaves the largest out", once(lambda x, k: (gate(x, k)[0], x.topk(k + 1)[1][:, 1:]))
    ),
    GATE.fault(
        "weights swapped",
        "gives the second expert the first one's weight",
        once(lambda x, k: (gate(x, k)[0].flip(-1), gate(x, k)[1])),
    ),
    GATE.fault("last expert never", "looks at 15 of 16 experts", once(lambda x, k: gate(x[:, :-1], k))),
    GATE.fault(
        "float8 logits", "logits go through float8_e5m2", once(lambda x, k: gate(stepwise(torch.float8_e5m2)(x), k))
    ),
    TOPK.healthy(
        "lowest index among equals",
        lambda x, k: tuple(item[:, :k] for item in torch.sort(x, dim=-1, descending=True, stable=True)),
    ),
    TOPK.healthy("highest index among equals", lambda x, k: _highest(x, k)),
    TOPK.fault(
        "the same expert twice",
        "gives the first expert twice",
        lambda x, k: (torch.topk(x, k)[0], torch.topk(x, k)[1][:, [0, 0, 2, 3]]),
    ),
    COMBINE.healthy("steps in 16 bit", combine, dtypes=NARROW, devices=ACCELERATOR),
    COMBINE.fault(
        "second expert lost", "only the first expert counts", once(lambda y, w, e: combine(y, w[:, :1], e[:, :1]))
    ),
    COMBINE.fault(
        "overwritten", "the second expert overwrites the first", once(lambda y, w, e: combine(y, w[:, 1:], e[:, 1:]))
    ),
    COMBINE.fault(
        "weights of the next token", "weights are one token off", once(lambda y, w, e: combine(y, w.roll(1, 0), e))
    ),
    COMBINE.fault(
        "one expert's weight doubled", "adds expert 3 twice", once(lambda y, w, e: combine(y, w * (1 + (e == 3)), e))
    ),
    COMBINE.wrong_gradient(
        "unweighted gradient",
        "the experts' gradient lacks their weight",
        with_gradient(
            combine,
            lambda g, y, w, e: (
                torch.stack([g * (e == n).any(-1)[:, None] for n in range(6)]),
                (y[e, torch.arange(40)[:, None]] * g[:, None]).sum(-1),
                None,
            ),
        ),
    ),
    BALANCE.healthy("by counts"),
    BALANCE.fault(
        "squared shares",
        "takes shares for probabilities",
        once(lambda p, e: 8 * F.one_hot(e, 8).to(p.dtype).mean(0).square().sum()),
    ),
    DISPATCH.healthy("expert by expert"),
    DISPATCH.fault(
        "order within an expert",
        "tokens of an expert are in reverse",
        lambda x, e, n: (torch.cat([x[e == i].flip(0) for i in range(n)]), dispatch(x, e, n)[1]),
    ),
    DISPATCH.fault(
        "last token twice",
        "writes one token over its neighbour",
        lambda x, e, n: (dispatch(x, e, n)[0][torch.arange(50).clamp_max(48)], dispatch(x, e, n)[1]),
    ),
    DISPATCH.fault(
        "by way of float8",
        "sends float8_e4m3",
        lambda x, e, n: (dispatch(stepwise(torch.float8_e4m3fn)(up(x)).to(x.dtype), e, n)[0], dispatch(x, e, n)[1]),
    ),
    GATE.healthy("softmax of the largest"),
    GATE.fault(
        "sigmoid",
        "takes sigmoids",
        once(lambda x, k: (torch.sigmoid(x.topk(k)[0]) / torch.sigmoid(x.topk(k)[0]).sum(-1, True), x.topk(k)[1])),
    ),
    TOPK.healthy("as it comes"),
    TOPK.fault(
        "one too low",
        "takes one expert below for the last",
        lambda x, k: tuple(torch.cat([item[:, : k - 1], item[:, k + 3 : k + 4]], -1) for item in torch.topk(x, k + 4)),
    ),
    TOPK.fault("ascending", "is in rising order", lambda x, k: tuple(item.flip(-1) for item in torch.topk(x, k))),
    COMBINE.healthy("expert by expert"),
    COMBINE.fault(
        "capacity of one fewer",
        "an expert's last token is dropped",
        once(lambda y, w, e: by_scatter(y, w * (torch.arange(40) != 33)[:, None], e)),
    ),
    COMBINE.fault("mean", "takes the mean of both", once(lambda y, w, e: combine(y, w, e) / 2)),
    COMBINE.wrong_gradient(
        "weight gradient missing",
        "the weights get no gradient",
        once(lambda y, w, e: by_scatter(y, w.detach() + 0 * w, e)),
    ),
    BALANCE.fault("not times the experts", "leaves the number of experts out", once(lambda p, e: balance(p, e) / 8)),
    DISPATCH.fault(
        "running counts", "gives running counts", lambda x, e, n: (dispatch(x, e, n)[0], dispatch(x, e, n)[1].cumsum(0))
    ),
)
