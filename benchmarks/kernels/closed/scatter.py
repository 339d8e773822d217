"""Scatter, gather, embedding and their gradients: closed entries."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import NARROW, Entry
from benchmarks.kernels.parts.scatter import ADD, EMBEDDING, GATHER, by_matrix, embedding, one_by_one, row_gradient
from benchmarks.kernels.rounding import once, with_gradient

ENTRIES: tuple[Entry, ...] = (
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
