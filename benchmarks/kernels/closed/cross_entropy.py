"""Cross entropy: chunks, label smoothing, z-loss, fused with a linear layer: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import BF16, Entry
from benchmarks.kernels.parts.cross_entropy import ENTROPY, ROWS, entropy, entropy_gradient, rows_loss, streamed_lse
from benchmarks.kernels.rounding import added_in, once, with_gradient

ENTRIES: tuple[Entry, ...] = (
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
