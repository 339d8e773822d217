"""Attention: grouped queries, sliding window, ALiBi, soft caps, packed sequences, a cache: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry
from benchmarks.kernels.parts.more_attention import (
    ALIBI,
    CAPPED,
    GROUPED,
    PACKED,
    PAGED,
    WINDOW,
    attend,
    distance,
    packed_mask,
    slopes,
    window_mask,
)
from benchmarks.kernels.rounding import once

ENTRIES: tuple[Entry, ...] = (
    GROUPED.fault(
        "values of the other head",
        "keys are right, values the other head's",
        once(lambda q, k, v: attend(q, k.repeat_interleave(4, 1), v.flip(1).repeat_interleave(4, 1))),
    ),
    GROUPED.wrong_gradient(
        "gradient of one query head",
        "key gradients are those of the group's first query head",
        once(
            lambda q, k, v: torch.cat(
                [
                    attend(q, k.repeat_interleave(4, 1).detach(), v.repeat_interleave(4, 1))[:, :4],
                    attend(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))[:, 4:],
                ],
                1,
            )
        ),
    ),
    WINDOW.fault(
        "window of whole tiles",
        "sees back to the start of a tile of 4",
        once(
            lambda q, k, v: attend(
                q, k, v, torch.maximum(window_mask(12), window_mask(15).where((torch.arange(48) % 4 > 0), -torch.inf))
            )
        ),
    ),
    ALIBI.fault(
        "slopes of the next head",
        "slopes are one head off",
        once(lambda q, k, v: attend(q, k, v, slopes().roll(1, 0) * distance() + window_mask(48))),
    ),
    ALIBI.fault(
        "slopes from 1",
        "slopes start at 1 in place of 1/2",
        once(lambda q, k, v: attend(q, k, v, slopes() * 2 * distance() + window_mask(48))),
    ),
    CAPPED.fault(
        "clamped",
        "clamps in place of tanh",
        once(lambda q, k, v, cap: torch.softmax((q @ k.mT / 4).clamp(-cap, cap), -1) @ v),
    ),
    PACKED.healthy("one by one"),
    PACKED.fault(
        "longest for all",
        "the last sequence loses keys beyond 16",
        once(lambda q, k, v, n: attend(q, k, v, packed_mask(n).index_fill(1, torch.arange(38, 48), -torch.inf))),
    ),
    PAGED.healthy("gathered"),
)
