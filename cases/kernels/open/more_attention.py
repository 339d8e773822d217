"""Attention: grouped queries, sliding window, ALiBi, soft caps, packed sequences, a cache: open entries."""

from __future__ import annotations

import torch

from cases.kernels.entry import BF16, Entry
from cases.kernels.making import normal
from cases.kernels.parts.more_attention import (
    ALIBI,
    CAPPED,
    GROUPED,
    PACKED,
    PAGED,
    WINDOW,
    attend,
    by_rows,
    decode,
    distance,
    packed_mask,
    slopes,
    window_mask,
)
from cases.kernels.rounding import once, stepwise

ENTRIES: tuple[Entry, ...] = (
    GROUPED.healthy("groups as a dimension"),
    GROUPED.fault(
        "heads interleaved",
        "query head h takes key head h modulo 2",
        once(lambda q, k, v: attend(q, k.repeat(1, 4, 1, 1), v.repeat(1, 4, 1, 1))),
    ),
    GROUPED.fault(
        "first key head for all",
        "all query heads take the first key head",
        once(lambda q, k, v: attend(q, k[:, :1], v[:, :1])),
    ),
    WINDOW.healthy("in float32"),
    WINDOW.fault("window one too wide", "sees 13 keys", once(lambda q, k, v: attend(q, k, v, window_mask(13)))),
    WINDOW.fault("window one too narrow", "sees 11 keys", once(lambda q, k, v: attend(q, k, v, window_mask(11)))),
    WINDOW.fault(
        "mask of -1e4",
        "masks by -1e4 beside scores of that size",
        once(lambda q, k, v: attend(q, k, v, window_mask(12).clamp_min(-1e4))),
        inputs=lambda dtype, g: [
            normal(g, dtype, 1, 4, 48, 16, scale=100.0),
            normal(g, dtype, 1, 4, 48, 16, scale=100.0),
            normal(g, dtype, 1, 4, 48, 16),
        ],
    ),
    ALIBI.healthy("in float32"),
    ALIBI.healthy(
        "key positions alone",
        once(lambda q, k, v: by_rows(q, k, v, slopes() * torch.arange(-47.0, 1.0) + window_mask(48))),
    ),
    ALIBI.fault(
        "bias scaled",
        "the bias is scaled with the scores",
        once(lambda q, k, v: attend(q, k, v, slopes() * distance() / 4 + window_mask(48))),
    ),
    ALIBI.fault(
        "bfloat16 positions",
        "positions of 2,048 and more are bfloat16",
        once(lambda q, k, v: attend(q, k, v, slopes() * stepwise(BF16)(torch.arange(48.0) + 2048) + window_mask(48))),
    ),
    CAPPED.healthy("tanh by exp"),
    CAPPED.fault("no cap", "leaves the cap out", once(lambda q, k, v, cap: attend(q, k, v))),
    CAPPED.fault(
        "cap before the scale",
        "caps the scores before they are scaled",
        once(lambda q, k, v, cap: torch.softmax(cap * torch.tanh(q @ k.mT / cap) / 4, -1) @ v),
    ),
    PACKED.fault(
        "borders one off",
        "each sequence begins one key early",
        once(lambda q, k, v, n: attend(q, k, v, packed_mask(n).where(packed_mask(n).roll(-1, 1) != 0, 0.0))),
    ),
    PACKED.fault("no borders", "all sequences see one another", once(lambda q, k, v, n: attend(q, k, v))),
    PAGED.fault(
        "whole last page", "unused slots of the last page take part", once(lambda q, k, v, t, n: decode(q, k, v, t, 48))
    ),
    PAGED.fault(
        "pages in order",
        "takes pages 0, 1, 2 whatever the table says",
        once(lambda q, k, v, t, n: decode(q, k, v, torch.arange(3), n)),
    ),
    PAGED.fault(
        "newest key missing",
        "the token's own key is not in the cache yet",
        once(lambda q, k, v, t, n: decode(q, k, v, t, n - 1)),
    ),
    PAGED.fault(
        "float8 cache",
        "keys go through float8_e5m2 without being asked to",
        once(lambda q, k, v, t, n: decode(q, stepwise(torch.float8_e5m2)(k), v, t, n)),
    ),
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
