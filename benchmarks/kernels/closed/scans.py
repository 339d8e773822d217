"""Scans: cumulative sums and products, linear recurrences as in Mamba, linear attention: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import BF16, Entry, Task
from benchmarks.kernels.making import uniform
from benchmarks.kernels.parts.scans import CUMSUM, LINEAR, SCAN, by_blocks, by_state, recurrence, running
from benchmarks.kernels.rounding import once, with_gradient

CUMPROD = Task(
    "cumprod",
    "scans",
    once(lambda x, d: torch.stack([x[..., : n + 1].prod(-1) for n in range(x.shape[-1])], -1)),
    torch.cumprod,
    lambda dtype, g: [uniform(g, dtype, 12, 60, low=0.8, high=1.2), -1],
    "Torch.cumprod",
)


ENTRIES: tuple[Entry, ...] = (
    CUMSUM.healthy(
        "backward from behind", with_gradient(by_blocks, lambda g, x, d: (by_blocks(g.flip(-1), -1).flip(-1), None))
    ),
    CUMPROD.healthy("product by product"),
    CUMPROD.fault(
        "by logarithms in 16 bit", "sums bfloat16 logarithms", once(lambda x, d: torch.exp(running(BF16, x.log())))
    ),
    CUMPROD.fault("starts at 0.99", "begins with 0.99", once(lambda x, d: torch.cumprod(x, d) * 0.99)),
    SCAN.fault(
        "decay one step late", "takes the decay of the step before", once(lambda a, b: recurrence(a.roll(1, -1), b))
    ),
    SCAN.fault("reversed", "runs from the end", once(lambda a, b: recurrence(a.flip(-1), b.flip(-1)).flip(-1))),
    LINEAR.healthy("chunks of 8"),
    LINEAR.fault(
        "own key left out", "a query does not see its own key", once(lambda q, k, v: by_state(q, k, v, own=-1))
    ),
    LINEAR.fault("sees one key ahead", "a query sees the next key", once(lambda q, k, v: (q @ k.mT).tril(1) @ v)),
)
