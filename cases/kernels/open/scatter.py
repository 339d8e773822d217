"""Scatter, gather, embedding and their gradients: open entries."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from cases.kernels.entry import BF16, F16, F32, NARROW, Entry, Task
from cases.kernels.making import integers, normal
from cases.kernels.parts.scatter import ADD, EMBEDDING, GATHER, by_matrix, embedding, one_by_one, row_gradient
from cases.kernels.rounding import once, ulp_up, with_gradient

SCATTER = Task(
    "scatter_reduce",
    "scatter",
    once(
        lambda x, d, i, s, r: torch.stack([torch.where(i == n, s, -torch.inf).amax(1) for n in range(20)], 1).maximum(x)
    ),
    lambda x, d, i, s, r: torch.scatter_reduce(x, d, i, s, r),
    lambda dtype, g: [normal(g, dtype, 10, 20), 1, integers(g, 20, 10, 60), normal(g, dtype, 10, 60), "amax"],
)


ENTRIES: tuple[Entry, ...] = (
    ADD.healthy("reverse order", once(one_by_one())),
    ADD.fault("race", "rows of the same index overwrite one another", once(one_by_one(last=True))),
    ADD.fault("index one off", "adds to the next row", once(lambda x, d, i, s: by_matrix(x, d, (i + 1) % 20, s))),
    ADD.fault(
        "mean",
        "adds the mean of the rows",
        once(
            lambda x, d, i, s: x + (by_matrix(x, d, i, s) - x) / torch.bincount(i, minlength=20).clamp_min(1)[:, None]
        ),
    ),
    EMBEDDING.healthy(
        "one-hot product",
        once(lambda i, w, p: F.one_hot(i, 30).to(w.dtype) @ torch.where(torch.arange(30)[:, None] == p, w.detach(), w)),
    ),
    EMBEDDING.fault(
        "next row", "takes the next row", with_gradient(lambda i, w, p: embedding((i + 1) % 30, w, p), row_gradient)
    ),
    EMBEDDING.fault("one ulp up", "gives the next number", once(embedding, ulp_up)),
    EMBEDDING.fault(
        "padding is zero",
        "gives zeros for the padding index",
        with_gradient(lambda i, w, p: embedding(i, w, p) * (i != p)[..., None], row_gradient),
    ),
    EMBEDDING.wrong_gradient(
        "race in the gradient",
        "rows of one index overwrite one another",
        with_gradient(
            embedding,
            lambda g, i, w, p: (
                None,
                torch.zeros_like(w).index_put((i.flatten(),), g.reshape(-1, 16)) * (torch.arange(30) != p)[:, None],
                None,
            ),
        ),
    ),
    EMBEDDING.wrong_gradient(
        "gradient scaled by frequency",
        "divides by how often an index is there",
        with_gradient(
            embedding,
            lambda g, i, w, p: (
                None,
                row_gradient(g, i, w, p)[1] / torch.bincount(i.flatten(), minlength=30).clamp_min(1)[:, None],
                None,
            ),
        ),
    ),
    EMBEDDING.wrong_gradient(
        "16-bit gradient",
        "adds the gradient up in bfloat16",
        with_gradient(
            embedding,
            lambda g, i, w, p: (
                None,
                one_by_one(BF16)(w * 0, 0, i.flatten(), g.reshape(-1, 16)) * (torch.arange(30) != p)[:, None],
                None,
            ),
        ),
    ),
    EMBEDDING.wrong_gradient(
        "gradient without the last token",
        "the last token of each row is left out",
        with_gradient(embedding, lambda g, i, w, p: row_gradient(g[:, :-1], i[:, :-1], w, p)),
    ),
    GATHER.healthy("take_along_dim"),
    GATHER.fault(
        "by way of bfloat16",
        "copies through bfloat16",
        lambda x, d, i: torch.gather(x.bfloat16().to(x.dtype), d, i),
        dtypes=(F32, F16),
    ),
    GATHER.wrong_gradient(
        "gradient of the last index",
        "equal indices overwrite one another's gradient",
        with_gradient(torch.gather, lambda g, x, d, i: (torch.zeros_like(x).scatter(d, i, g), None, None)),
    ),
    SCATTER.healthy("largest by comparison"),
    SCATTER.fault(
        "begins at 0",
        "begins with 0, so that negative maxima are lost",
        once(lambda x, d, i, s, r: torch.scatter_reduce(x, d, i, s, r).clamp_min(0)),
    ),
    SCATTER.fault(
        "own value left out",
        "leaves the old value out",
        once(lambda x, d, i, s, r: torch.scatter_reduce(x, d, i, s, r, include_self=False)),
    ),
    SCATTER.fault(
        "last one wins", "keeps the last value in place of the largest", lambda x, d, i, s, r: torch.scatter(x, d, i, s)
    ),
    ADD.healthy("one-hot product"),
    ADD.fault(
        "rounded after each row",
        "atomics round to the tensor's dtype after each of 20 rows",
        lambda x, d, i, s: once(one_by_one(x.dtype))(x, d, i, s),
        dtypes=NARROW,
    ),
    ADD.fault("one row lost", "one of 400 rows is not added", once(lambda x, d, i, s: by_matrix(x, d, i[1:], s[1:]))),
    ADD.fault(
        "row added twice",
        "one of 400 rows is added twice",
        once(lambda x, d, i, s: by_matrix(x, d, torch.cat([i, i[:1]]), torch.cat([s, s[:1]]))),
    ),
    ADD.fault("old values lost", "begins with zeros", once(lambda x, d, i, s: by_matrix(x * 0, d, i, s))),
    EMBEDDING.healthy("sorted gradient"),
    EMBEDDING.wrong_gradient(
        "gradient of the padding",
        "the padding row gets a gradient",
        with_gradient(embedding, lambda g, i, w, p: row_gradient(g, i, w, p, keep=True)),
    ),
    GATHER.fault("other dimension", "takes rows for columns", lambda x, d, i: x[i, torch.arange(25) % 20]),
    GATHER.fault("int8 wrap", "indices beyond 15 wrap", lambda x, d, i: torch.gather(x, d, i % 16)),
)
