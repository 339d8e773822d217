"""Attention: flash, grouped queries, causal, sliding window, masks, ALiBi: open entries."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels import defects
from cases.kernels.entry import ACCELERATOR, BF16, F16, NARROW, Entry
from cases.kernels.making import normal
from cases.kernels.parts.attention import CAUSAL, FULL, Tensor, attention_gradient, causal_mask, flash, plain
from cases.kernels.rounding import after, by_way_of, once, stepwise, tiles, toward_zero, ulp_up, with_gradient


def split_keys(q: Tensor, k: Tensor, v: Tensor, weighted: bool = True) -> Tensor:
    """Flash-decoding: parts of the keys by themselves, then put together by their log-sum-exp."""
    scale = q.shape[-1] ** -0.5
    outs, sums = [], []
    for keys, values in zip(tiles(k, 16, -2), tiles(v, 16, -2), strict=True):
        scores = q @ keys.transpose(-2, -1) * scale
        outs.append(torch.softmax(scores, -1) @ values)
        sums.append(torch.logsumexp(scores, -1, keepdim=True))
    lse = torch.stack(sums)
    weights = torch.softmax(lse, 0) if weighted else torch.full_like(lse, 1 / len(outs))
    return (weights * torch.stack(outs)).sum(0)


def _cut_queries(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Any, ...]:
    gq, _, gv = attention_gradient(g, q, k, v)
    return gq, attention_gradient(g[..., :32, :], q[..., :32, :], k, v)[1], gv


ENTRIES: tuple[Entry, ...] = (
    FULL.healthy("in float32"),
    FULL.healthy("flash, blocks of 16", once(flash)),
    FULL.healthy("flash, blocks of 8", once(lambda q, k, v: flash(q, k, v, block=8)), backward=False),
    FULL.healthy("flash with its own backward", with_gradient(flash, attention_gradient)),
    FULL.healthy("query scaled first", once(lambda q, k, v: plain(q * 32**-0.5, k, v, scale=1.0))),
    FULL.healthy("split over keys", once(lambda q, k, v: split_keys(q, k, v))),
    FULL.fault("rows unwritten", "the last two rows hold old memory", after(FULL.kernel, defects.tail(64, 0.5))),
    FULL.fault(
        "last key lost", "the loop ends one key early", once(lambda q, k, v: plain(q, k[..., :-1, :], v[..., :-1, :]))
    ),
    FULL.fault("scale of d + 1", "scales by 1/sqrt(d + 1)", once(lambda q, k, v: plain(q, k, v, scale=33**-0.5))),
    FULL.fault("scale twice", "scales query and scores", once(lambda q, k, v: plain(q * 32**-0.5, k, v))),
    FULL.fault("heads swapped", "takes the next head's values", once(lambda q, k, v: plain(q, k, v.roll(1, 1)))),
    FULL.fault(
        "output not rescaled",
        "the accumulator is not rescaled to a new maximum",
        once(lambda q, k, v: flash(q, k, v, rescale=False)),
    ),
    FULL.fault(
        "float16 overflow",
        "scores of query and key in float16 overflow",
        lambda q, k, v: (
            torch.softmax((q @ k.transpose(-2, -1)).float().nan_to_num(0.0, 0.0, 0.0) * 32**-0.5, -1) @ v.float()
        ).to(q.dtype),
        dtypes=(F16,),
        inputs=lambda dtype, g: [
            normal(g, dtype, 1, 3, 40, 32, scale=60.0),
            normal(g, dtype, 1, 3, 40, 32, scale=60.0),
            normal(g, dtype, 1, 3, 40, 32),
        ],
    ),
    FULL.fault(
        "float8 probabilities",
        "probabilities go through float8_e5m2",
        once(lambda q, k, v: flash(q, k, v, p_step=stepwise(torch.float8_e5m2))),
    ),
    FULL.fault(
        "splits put together alike",
        "the parts of split keys are averaged",
        once(lambda q, k, v: split_keys(q, k, v, weighted=False)),
    ),
    FULL.fault("truncated", "cuts where it should round", once(plain, toward_zero), dtypes=NARROW),
    FULL.fault("by way of float8", "goes through float8_e4m3", once(plain, by_way_of(torch.float8_e4m3fn))),
    FULL.fault(
        "dropout left on",
        "drops a key's values",
        once(lambda q, k, v: plain(q, k, v * (torch.arange(40) % 10 != 3)[:, None] / 0.9)),
    ),
    FULL.wrong_gradient(
        "gradient without delta",
        "the backward leaves the rows' sums out",
        with_gradient(plain, lambda *a: attention_gradient(*a, delta=0.0)),
    ),
    FULL.wrong_gradient(
        "value gradient of the probabilities",
        "the value's gradient is not transposed",
        with_gradient(
            plain, lambda g, q, k, v: (*attention_gradient(g, q, k, v)[:2], torch.softmax(q @ k.mT * 32**-0.5, -1) @ g)
        ),
    ),
    FULL.wrong_gradient(
        "key gradient without the last queries",
        "the key's gradient sums 32 of 40 queries",
        with_gradient(plain, lambda g, q, k, v: _cut_queries(g, q, k, v)),
    ),
    CAUSAL.healthy(
        "lowest finite mask",
        once(lambda q, k, v, *_: plain(q, k, v, causal_mask(40, 40).clamp_min(-1e30))),
        backward=False,
    ),
    CAUSAL.fault(
        "sees no own key",
        "the mask hides the query's own key, but for the first",
        once(lambda q, k, v, *_: plain(q, k, v, causal_mask(40, 40, -1).index_fill(1, torch.tensor([0]), 0.0))),
    ),
    CAUSAL.fault(
        "mask of -10",
        "masks by adding -10",
        once(lambda q, k, v, *_: plain(q, k, v, causal_mask(40, 40).clamp_min(-10))),
    ),
    CAUSAL.fault("no mask", "is not causal", once(lambda q, k, v, *_: plain(q, k, v))),
    CAUSAL.fault(
        "mask by tiles",
        "only whole tiles of 8 keys are hidden",
        once(lambda q, k, v, *_: plain(q, k, v, causal_mask(5, 5).repeat_interleave(8, 0).repeat_interleave(8, 1))),
    ),
    FULL.healthy(
        "flash, 16-bit probabilities",
        lambda q, k, v: once(
            lambda q, k, v: flash(q, k, v, p_step=stepwise(BF16 if q.dtype is not torch.float64 else q.dtype))
        )(q, k, v),
        dtypes=(BF16,),
        devices=ACCELERATOR,
        backward=False,
    ),
    FULL.healthy(
        "operations in 16 bit",
        lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1) @ v,
        dtypes=NARROW,
        devices=ACCELERATOR,
        backward=False,
    ),
    FULL.fault("zeros", "gives zeros", after(FULL.kernel, defects.zeros)),
    FULL.fault(
        "last tile lost",
        "the ragged last tile of keys is left out",
        once(lambda q, k, v: plain(q, k[..., :32, :], v[..., :32, :])),
    ),
    FULL.fault(
        "padded keys",
        "8 padded zero keys take part",
        once(lambda q, k, v: plain(q, F.pad(k, (0, 0, 0, 8)), F.pad(v, (0, 0, 0, 8)))),
    ),
    FULL.fault("no scale", "does not scale", once(lambda q, k, v: plain(q, k, v, scale=1.0))),
    FULL.fault(
        "accumulator in 16 bit",
        "rounds the output after every key",
        lambda q, k, v: once(lambda a, b, c: flash(a, b, c, block=1, o_step=stepwise(q.dtype)))(q, k, v),
        dtypes=NARROW,
    ),
    FULL.fault("one ulp up", "rounds everything one step too high", once(plain, ulp_up), dtypes=NARROW),
    FULL.fault("factor 1.004", "is 0.4 % too large", once(lambda *a: plain(*a) * 1.004)),
    FULL.wrong_gradient(
        "gradient without scale",
        "query's and key's gradients lack the scale",
        with_gradient(plain, lambda *a: attention_gradient(*a, scaled=False)),
    ),
    CAUSAL.healthy("flash"),
    CAUSAL.fault(
        "sees one key ahead",
        "the mask is one key late",
        once(lambda q, k, v, *_: plain(q, k, v, causal_mask(40, 40, 1))),
    ),
    CAUSAL.fault(
        "mask before the scale",
        "the masked ones are 0 before the softmax",
        once(lambda q, k, v, *_: torch.softmax((q @ k.mT * 32**-0.5).tril(), -1) @ v),
    ),
)
