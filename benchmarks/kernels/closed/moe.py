"""Mixture of experts: gating, dispatch, combination, balance: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry
from benchmarks.kernels.parts.moe import BALANCE, COMBINE, DISPATCH, GATE, TOPK, balance, by_scatter, combine, dispatch
from benchmarks.kernels.rounding import once

ENTRIES: tuple[Entry, ...] = (
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
