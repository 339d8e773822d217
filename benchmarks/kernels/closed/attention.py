"""Attention: flash, grouped queries, causal, sliding window, masks, ALiBi: closed entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.kernels import defects
from benchmarks.kernels.entry import ACCELERATOR, BF16, NARROW, Entry
from benchmarks.kernels.parts.attention import CAUSAL, FULL, attention_gradient, causal_mask, flash, plain
from benchmarks.kernels.rounding import after, once, stepwise, ulp_up, with_gradient

ENTRIES: tuple[Entry, ...] = (
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
