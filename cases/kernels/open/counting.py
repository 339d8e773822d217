"""Counting: histograms, bincount, bucketize, thresholds, sorting: open entries."""

from __future__ import annotations

import torch

from cases.kernels.entry import F16, Entry
from cases.kernels.parts.counting import BUCKET, HISTC, PLAIN, SORT, THRESHOLD, UNIQUE, Tensor, chosen, counted
from cases.kernels.rounding import stepwise


def _from_behind(x: Tensor) -> tuple[Tensor, ...]:
    """Equal elements in falling order of their indices."""
    values, places = torch.sort(x.flip(-1), stable=True)
    return values, 199 - places


ENTRIES: tuple[Entry, ...] = (
    HISTC.healthy("by multiplication"),
    HISTC.healthy(
        "by comparison",
        lambda x, bins, low, high: torch.stack(
            [
                ((x >= a) & (x < a + 0.25)).sum() + (x == high).sum() * (a == 0.75)
                for a in (n * 0.25 - 1 for n in range(bins))
            ]
        ).to(x.dtype),
    ),
    HISTC.fault("one bin off", "counts into the next bin", lambda x, *a: counted(x, *a).roll(1)),
    HISTC.fault("race", "loses one count in a hundred", lambda x, *a: counted(x[torch.arange(len(x)) % 100 != 7], *a)),
    PLAIN.fault("race", "one of each bin's counts is lost", lambda x: torch.bincount(x) - 1),
    PLAIN.fault("zero not counted", "leaves 0 out", lambda x: torch.bincount(x) * (torch.arange(40) > 0)),
    BUCKET.healthy("by comparison"),
    BUCKET.fault(
        "closed on the other side",
        "takes a border into the bucket above",
        lambda x, b: torch.bucketize(x, b, right=True),
    ),
    BUCKET.fault("last border", "does not see the last border", lambda x, b: torch.bucketize(x, b[:-1])),
    THRESHOLD.healthy("compared"),
    THRESHOLD.fault("strictly above", "leaves what is equal out", lambda x, limit: (x > limit, (x > limit).sum())),
    THRESHOLD.fault(
        "count in 8 bits", "the count wraps at 256", lambda x, limit: (x >= limit, (x >= limit).sum() % 256)
    ),
    SORT.healthy("equals from behind", lambda x: _from_behind(x)),
    SORT.fault(
        "last two not merged",
        "the last two are not in order",
        lambda x: tuple(item[:, torch.cat([torch.arange(198), torch.tensor([199, 198])])] for item in torch.sort(x)),
    ),
    SORT.fault("largest first", "sorts downwards", lambda x: tuple(torch.sort(x, descending=True))),
    SORT.fault(
        "indices of another row",
        "indices are the next row's",
        lambda x: (torch.sort(x)[0], torch.sort(x)[1].roll(1, 0)),
    ),
    SORT.fault(
        "one value twice",
        "writes one value over its neighbour",
        lambda x: (torch.sort(x)[0][:, torch.arange(200) - (torch.arange(200) == 77).long()], torch.sort(x)[1]),
    ),
    UNIQUE.fault("last one lost", "leaves the largest out", lambda x: torch.unique(x)[:-1]),
    HISTC.fault(
        "last edge lost",
        "leaves out what lies on the upper end",
        lambda x, b, low, high: counted(x, b, low, high, last=False),
    ),
    HISTC.fault(
        "outliers counted",
        "counts what lies outside into the outer bins",
        lambda x, b, low, high: counted(x.clamp(low, high), b, low, high),
    ),
    HISTC.fault(
        "bins of float16", "rounds to float16 before counting", lambda x, *a: counted(stepwise(F16)(x) + 1e-3, *a)
    ),
    PLAIN.healthy("by comparison"),
    PLAIN.fault("saturates", "counts in 6 bits", lambda x: torch.bincount(x).clamp_max(48)),
    BUCKET.fault("from 1", "counts from 1", lambda x, b: torch.bucketize(x, b) + 1),
    THRESHOLD.fault("limit as an integer", "cuts the limit to 12", lambda x, limit: chosen(x, 12.0)),
    SORT.healthy("stable"),
    SORT.fault("magnitudes", "sorts by magnitude", lambda x: (x.gather(-1, x.abs().argsort(-1)), x.abs().argsort(-1))),
    UNIQUE.healthy("by neighbours"),
)
