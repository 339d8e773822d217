"""Attention in inference: split keys, pages, scaled caches, padding: closed entries."""

from __future__ import annotations

from typing import Any

import torch

from cases.kernels.entry import NARROW, Entry, Task
from cases.kernels.making import normal, uniform
from cases.kernels.rounding import once, stepwise

Tensor = torch.Tensor
LENGTHS = (64, 37, 5)


def cache(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """A query a sequence and head; 64 slots of keys and values."""
    return [normal(g, dtype, 3, 4, 32, scale=6.0), normal(g, dtype, 3, 4, 64, 32), normal(g, dtype, 3, 4, 64, 32)]


def decode_reference(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bhd,bhkd->bhk", q, k) * 32**-0.5
    scores = scores.masked_fill(torch.arange(64) >= torch.tensor(LENGTHS)[:, None, None], -torch.inf)
    return torch.einsum("bhk,bhkd->bhd", torch.softmax(scores, -1), v), torch.logsumexp(scores, -1)


def decode(
    lengths: Any = LENGTHS, empty: float = -torch.inf, step: Any = None, sums: Any = None, joined: Any = None
) -> Any:
    """16 keys a split; empty: the sum of a split without keys; step: how a split's output is kept."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.einsum("bhd,bhkd->bhk", q, k) * 32**-0.5
        scores = scores.masked_fill(torch.arange(64) >= torch.tensor(lengths)[:, None, None], -torch.inf)
        parts, values = scores.unflatten(-1, (4, 16)), v.unflatten(-2, (4, 16))
        high = parts.amax(-1, keepdim=True)
        e = torch.exp(parts - high.masked_fill(high == -torch.inf, 0.0))
        total = e.sum(-1)
        outs = torch.einsum("bhsk,bhskd->bhsd", e, values) / total.clamp_min(1e-30)[..., None]
        lse = torch.where(total > 0, high[..., 0] + total.log(), torch.full_like(total, empty))
        outs, lse = (outs if step is None else step(outs)), (lse if sums is None else sums(lse))
        whole = torch.logsumexp(lse, -1) if joined is None else joined(lse)
        return (torch.exp(lse - whole[..., None])[..., None] * outs).sum(-2), whole

    return run


DECODE = Task("decoding by split keys", "attention", once(decode()), decode_reference, cache)


def own_dtype(change: Any) -> Any:
    """A kernel told the dtype of its first argument."""
    return lambda q, *rest: once(change(q.dtype))(q, *rest)


def over_largest(lse: Tensor) -> Tensor:
    high = lse.amax(-1)
    return high + (lse - high[..., None]).exp().sum(-1).log()


def lost_split(lse: Tensor) -> Tensor:
    """The last split of the longest sequence is not waited for."""
    gone = torch.zeros(3, 1, 4, dtype=torch.bool)
    gone[0, 0, 3] = True
    return lse.masked_fill(gone, -torch.inf)


TABLE = torch.tensor([[5, 2, 0], [1, 4, 7]])
LONG = (41, 22)


def pages(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Pages of 16 slots with a scale a head; slots of the last page that nobody wrote hold NaN."""
    made = []
    for _ in range(2):
        stored = normal(g, dtype, 8, 4, 16, 16, scale=40.0)
        for row, length in zip(TABLE, LONG, strict=True):
            stored[row[length // 16], :, length % 16 :] = torch.nan
        made.append(stored)
    scales = [uniform(g, dtype, 4, low=0.01, high=0.04) for _ in range(2)]
    return [normal(g, dtype, 2, 4, 16, scale=1.5), *made, *scales]


def paged(table: Tensor = TABLE, lengths: Any = LONG, clean: bool = True, own: Any = None, scales: Any = None) -> Any:
    def run(q: Tensor, k: Tensor, v: Tensor, ks: Tensor, vs: Tensor) -> Tensor:
        ks, vs = scales(ks, vs) if scales else (ks, vs)
        outs = []
        for row, query, length in zip(table, q, lengths, strict=True):
            keys, values = (x[row].transpose(0, 1).reshape(4, -1, 16) for x in (k, v))
            gone = torch.arange(keys.shape[1]) >= length
            scores = (torch.einsum("hd,hkd->hk", query, keys) / 4 * ks[:, None]).masked_fill(gone, -torch.inf)
            values = values.masked_fill(gone[:, None], 0.0) if clean else values
            outs.append(torch.einsum("hk,hkd->hd", torch.softmax(scores, -1), values) * vs[:, None])
        return torch.stack(outs)

    return run


def paged_reference(q: Tensor, k: Tensor, v: Tensor, ks: Tensor, vs: Tensor) -> Tensor:
    outs = []
    for row, query, length in zip(TABLE, q, LONG, strict=True):
        keys = torch.cat([k[page] for page in row], 1)[:, :length] * ks[:, None, None]
        values = torch.cat([v[page] for page in row], 1)[:, :length] * vs[:, None, None]
        outs.append((torch.softmax(query[:, None] @ keys.mT / 4, -1) @ values)[:, 0])
    return torch.stack(outs)


PAGED = Task("scaled pages", "attention", once(paged()), paged_reference, pages)

PADS = (20, 0, 13)


def padded(lengths: Any = PADS, empty: Any = None, low: float = -torch.inf) -> Any:
    """Keys beyond a sequence's length are hidden; a sequence without keys gives zeros."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        gone = torch.arange(20) >= torch.tensor(lengths)[:, None, None]
        scores = (q @ k.mT / 4).masked_fill(gone, low)
        high = scores.amax(-1, keepdim=True)
        e = torch.exp(scores - (high if empty else high.masked_fill(high == -torch.inf, 0.0)))
        total = e.sum(-1, keepdim=True)
        return (e @ v) / (total if empty else torch.where(total == 0, 1.0, total))

    return run


def padded_reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    outs = [torch.softmax(a @ b[:n].mT / 4, -1) @ c[:n] for a, b, c, n in zip(q, k, v, PADS, strict=True)]
    return torch.stack(outs)


PADDED = Task(
    "padded batch",
    "attention",
    once(padded()),
    padded_reference,
    lambda dtype, g: [normal(g, dtype, 3, 20, 16, scale=1.4) for _ in range(3)],
)

ENTRIES: tuple[Entry, ...] = (
    DECODE.healthy("splits of 16"),
    DECODE.healthy("sums over the largest", once(decode(joined=over_largest))),
    DECODE.fault("empty splits count", "a split without keys has a sum of exp(0)", once(decode(empty=0.0))),
    DECODE.fault(
        "log to base 2",
        "the log-sum-exp comes out to base 2",
        once(lambda *a: (decode()(*a)[0], decode()(*a)[1] * 1.4426950408889634)),
    ),
    DECODE.fault(
        "lengths from the first", "all sequences have the first one's length", once(decode(lengths=(64, 64, 64)))
    ),
    DECODE.fault("full last split", "the shorter sequences end with the split", once(decode(lengths=(64, 48, 16)))),
    DECODE.fault(
        "split not waited for",
        "a head's last split is put together before it is written",
        once(decode(sums=lost_split)),
    ),
    DECODE.fault(
        "16-bit sums",
        "the splits' log-sum-exps are kept in the tensors' dtype",
        own_dtype(lambda dtype: decode(sums=stepwise(dtype))),
        dtypes=NARROW,
    ),
    DECODE.fault(
        "only the largest split", "the whole sum is the largest split's", once(decode(joined=lambda x: x.amax(-1)))
    ),
    PAGED.healthy("scales after the products"),
    PAGED.fault("slots unmasked in the values", "0 times the NaN of an unwritten slot", once(paged(clean=False))),
    PAGED.fault("one scale for both", "values take the keys' scale", once(paged(scales=lambda k, v: (k, k)))),
    PAGED.fault(
        "scale of the next head", "key scales are one head off", once(paged(scales=lambda k, v: (k.roll(1), v)))
    ),
    PAGED.fault(
        "stride of the table",
        "the second row of the table begins one page early",
        once(paged(table=torch.tensor([[5, 2, 0], [0, 1, 4]]), lengths=LONG)),
        inputs=lambda dtype, g: [x.nan_to_num(24.0) for x in pages(dtype, g)],
    ),
    PAGED.fault("last token lost", "the newest slot is not seen", once(paged(lengths=(40, 21)))),
    PADDED.healthy("masked rows give zeros"),
    PADDED.fault("NaN without keys", "a sequence without keys is -inf minus -inf", once(padded(empty=True))),
    PADDED.fault("mean without keys", "a sequence without keys gives the mean of its padding", once(padded(low=-1e30))),
    PADDED.fault("one length less", "the last valid key is hidden", once(padded(lengths=(19, 0, 12)))),
    PADDED.fault("lengths of the next", "lengths are one sequence off", once(padded(lengths=(13, 20, 0)))),
)
