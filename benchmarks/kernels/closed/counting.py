"""Counting: histograms, bincount, bucketize, thresholds, sorting: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import F16, Entry
from benchmarks.kernels.parts.counting import BUCKET, HISTC, PLAIN, SORT, THRESHOLD, UNIQUE, chosen, counted
from benchmarks.kernels.rounding import stepwise

ENTRIES: tuple[Entry, ...] = (
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
