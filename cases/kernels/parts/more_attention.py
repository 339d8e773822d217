"""Attention: grouped queries, sliding window, ALiBi, soft caps, packed sequences, a cache: tasks and kernels."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import Task
from cases.kernels.making import normal
from cases.kernels.rounding import once

Tensor = torch.Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | float = 0.0) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + mask, -1) @ v


def by_rows(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | float = 0.0) -> Tensor:
    """Unnormalised probabilities times values, divided at the end."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + mask
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


def heads(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """8 heads of queries, 2 of keys."""
    return [normal(g, dtype, 2, 8, 24, 16), normal(g, dtype, 2, 2, 24, 16), normal(g, dtype, 2, 2, 24, 16)]


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))


GROUPED = Task(
    "grouped queries",
    "attention",
    once(lambda q, k, v: by_rows(q.reshape(2, 2, 4, 24, 16), k[:, :, None], v[:, :, None]).reshape(q.shape)),
    grouped,
    heads,
    backward=True,
)


def window_mask(size: int, n: int = 48) -> Tensor:
    """The query's own key and the size - 1 before it."""
    seen = torch.ones(n, n).tril().triu(1 - size)
    return torch.zeros(n, n).masked_fill(seen == 0, -torch.inf)


def long(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 1, 4, 48, 16) for _ in range(3)]


WINDOW = Task(
    "sliding window",
    "attention",
    once(lambda q, k, v: by_rows(q, k, v, window_mask(12))),
    lambda q, k, v: attend(q, k, v, window_mask(12)),
    long,
    backward=True,
)


def slopes(ratio: float = 2.0) -> Tensor:
    return (ratio ** -torch.arange(1.0, 5.0))[:, None, None]


def distance() -> Tensor:
    return torch.arange(48.0)[None, :] - torch.arange(48.0)[:, None]


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend(q, k, v, slopes() * distance() + window_mask(48))


ALIBI = Task(
    "ALiBi",
    "attention",
    once(lambda q, k, v: by_rows(q, k, v, slopes() * (distance() + 0.0) + window_mask(48))),
    alibi,
    long,
    backward=True,
)


def capped(q: Tensor, k: Tensor, v: Tensor, cap: float) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return torch.softmax(cap * torch.tanh(scores / cap), -1) @ v


CAPPED = Task(
    "soft cap",
    "attention",
    once(
        lambda q, k, v, cap: (
            torch.softmax(
                cap * (1 - 2 / (torch.exp(2 * (q @ k.transpose(-2, -1)) / (q.shape[-1] ** 0.5 * cap)) + 1)), -1
            )
            @ v
        )
    ),
    capped,
    lambda dtype, g: [normal(g, dtype, 1, 4, 48, 16, scale=3.0), *long(dtype, g)[1:], 10.0],
    backward=True,
)


def packed_mask(lengths: Any) -> Tensor:
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return torch.zeros(48, 48).masked_fill(number[:, None] != number, -torch.inf)


def by_sequence(q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
    """Each of the packed sequences by itself."""
    outs, start = [], 0
    for length in lengths:
        end = start + length
        outs.append(by_rows(q[..., start:end, :], k[..., start:end, :], v[..., start:end, :]))
        start = end
    return torch.cat(outs, -2)


PACKED = Task(
    "packed sequences",
    "attention",
    once(by_sequence),
    lambda q, k, v, lengths: attend(q, k, v, packed_mask(lengths)),
    lambda dtype, g: [*long(dtype, g), (5, 16, 1, 26)],
    backward=True,
)


def decode(q: Tensor, k: Tensor, v: Tensor, table: Tensor, length: int) -> Tensor:
    """One new token a sequence; keys lie in pages that a table names."""
    keys, values = (torch.cat([pages[p] for p in table], -2)[..., :length, :] for pages in (k, v))
    return attend(q, keys, values)


PAGED = Task(
    "paged cache",
    "attention",
    once(
        lambda q, k, v, table, n: by_rows(
            q, *(pages[table].transpose(0, 1).reshape(4, -1, 16)[:, :n] for pages in (k, v))
        )
    ),
    decode,
    lambda dtype, g: [
        normal(g, dtype, 4, 1, 16, scale=2.0),
        normal(g, dtype, 6, 4, 16, 16),
        normal(g, dtype, 6, 4, 16, 16),
        torch.tensor([4, 0, 3]),
        43,
    ],
)
