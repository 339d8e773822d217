"""Scatter and gather: segments, bags, prototypes of rows, masked writes, sorted indices: closed entries."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import BF16, NARROW, Entry, Task
from cases.kernels.making import integers, normal
from cases.kernels.rounding import added_in, once, with_gradient

Tensor = torch.Tensor
ENDS = (0, 17, 17, 18, 60, 96, 100)


def segments(x: Tensor, ends: Any = ENDS, mean: bool = False, empty: float = 0.0, add: Any = None) -> Tensor:
    """Sums of neighbouring rows; one segment is empty."""
    rows = []
    for start, stop in pairwise(ends):
        own = x[start:stop]
        total = own.sum(0) if add is None or not len(own) else add(own)
        rows.append(total / max(1, stop - start) if mean else total)
    return torch.stack(rows) + empty * (torch.tensor(ENDS).diff() == 0)[:, None]


def segments_reference(x: Tensor) -> Tensor:
    own = torch.repeat_interleave(torch.arange(6), torch.tensor(ENDS).diff())
    return torch.zeros(6, x.shape[1], dtype=x.dtype).index_add(0, own, x)


SEGMENTS = Task(
    "sums of segments",
    "scatter",
    once(segments),
    segments_reference,
    lambda dtype, g: [normal(g, dtype, 100, 40, mean=0.3)],
    backward=True,
)


def by_difference(x: Tensor) -> Tensor:
    """Prefix sums at the ends, taken from each other."""
    whole = F.pad(x.cumsum(0), (0, 0, 1, 0))
    return whole[list(ENDS[1:])] - whole[list(ENDS[:-1])]


def bags(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """A table, tokens, where each bag begins, weights of the tokens."""
    tokens = integers(g, 50, 64)
    return [normal(g, dtype, 50, 24), tokens, normal(g, dtype, 64, mean=1.0, scale=0.5)]


FIRSTS = (0, 1, 20, 20, 41)


def bag(
    table: Tensor, tokens: Tensor, weight: Tensor, mode: str = "sum", last: int = 64, weighted: bool = True
) -> Tensor:
    outs = []
    for start, stop in zip(FIRSTS, (*FIRSTS[1:], last), strict=True):
        rows = table[tokens[start:stop]] * (weight[start:stop, None] if weighted else 1.0)
        outs.append(rows.sum(0) / (max(1, stop - start) if mode == "mean" else 1))
    return torch.stack(outs)


def bag_gradient(own: bool = True, each: str = "sum") -> Any:
    def gradient(g: Tensor, table: Tensor, tokens: Tensor, weight: Tensor) -> Any:
        number = torch.repeat_interleave(torch.arange(5), torch.tensor((*FIRSTS, 64)).diff())
        rows = g[number] * (weight[:, None] if own else 1.0)
        out = torch.zeros_like(table)
        if each == "sum":
            out = out.index_add(0, tokens, rows)
        else:
            out[tokens] = rows
        return out, None, (g[number] * table[tokens]).sum(-1)

    return with_gradient(bag, gradient)


BAG = Task(
    "embedding bag",
    "scatter",
    bag_gradient(),
    lambda table, tokens, weight: F.embedding_bag(
        tokens, table, torch.tensor(FIRSTS), mode="sum", per_sample_weights=weight
    ),
    bags,
    backward=True,
)

PUT = Task(
    "cache written by slots",
    "scatter",
    lambda cache, new, slot: cache.index_copy_(0, slot[slot >= 0], new[slot >= 0]),
    lambda cache, new, slot: cache.copy_(
        torch.stack([new[(slot == n).nonzero()[0, 0]] if (slot == n).any() else row for n, row in enumerate(cache)])
    ),
    lambda dtype, g: [
        normal(g, dtype, 40, 12),
        normal(g, dtype, 10, 12),
        torch.tensor([3, 39, -1, 8, 0, 21, -1, 30, 11, 12]),
    ],
)


def one_padded(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    slots = torch.tensor([3, 38, -1, 8, 0, 21, 7, 30, 11, 12])
    return [normal(g, dtype, 40, 12), normal(g, dtype, 10, 12), slots]


def put(change: Any) -> Any:
    """Slots below 0 are padding."""
    return lambda cache, new, slot: cache.index_copy_(0, *change(slot, new))


def pooled(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Messages of edges to nodes; node 5 has none."""
    to = integers(g, 19, 300)
    to[to == 5] = 6
    return [normal(g, dtype, 300, 16), to]


def mean_of(x: Tensor, to: Tensor, nodes: int = 20, least: float = 1.0, lost: bool = False) -> Tensor:
    count = torch.bincount(to, minlength=nodes).to(x.dtype).clamp_min(least)
    kept = torch.ones(len(to), 1).to(x.dtype)
    kept[-1 if lost else len(to) :] = 0.0
    hot = F.one_hot(to, nodes).to(x.dtype)
    return hot.t() @ (x * kept) / count[:, None]


def self_counted(x: Tensor, to: Tensor) -> Tensor:
    return torch.zeros(20, 16, dtype=x.dtype).index_reduce(0, to, x, "mean", include_self=True)


def mean_reference(x: Tensor, to: Tensor) -> Tensor:
    return torch.zeros(20, 16, dtype=x.dtype).index_reduce(0, to, x, "mean", include_self=False)


NODES = Task("mean of messages", "scatter", once(mean_of), mean_reference, pooled)


def attended(x: Tensor, to: Tensor, high: str = "own", eps: float = 0.0) -> Tensor:
    """The softmax over the edges of a node."""
    largest = torch.full((20,), -torch.inf, dtype=x.dtype).scatter_reduce(0, to, x, "amax")
    e = torch.exp(x - {"own": largest[to], "all": x.amax(), "none": torch.zeros_like(x)}[high])
    return e / (torch.zeros(20, dtype=x.dtype).index_add(0, to, e)[to] + eps)


def attended_reference(x: Tensor, to: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for node in range(20):
        out[to == node] = torch.softmax(x[to == node], 0)
    return out


EDGES = Task(
    "softmax of edges",
    "scatter",
    once(attended),
    attended_reference,
    lambda dtype, g: [normal(g, dtype, 300, scale=60.0), integers(g, 20, 300)],
)

PICKED = Task(
    "index select",
    "scatter",
    with_gradient(
        lambda x, at: x.index_select(1, at),
        lambda g, x, at: (torch.zeros_like(x).index_add(1, at, g), None),
    ),
    lambda x, at: x[:, at],
    lambda dtype, g: [normal(g, dtype, 8, 50, 6), integers(g, 50, 90)],
    backward=True,
)


def summed_in(dtype: torch.dtype) -> Any:
    """index_select whose gradient is added up in a dtype."""

    def gradient(g: Tensor, x: Tensor, at: Tensor) -> Any:
        out = torch.zeros_like(x)
        for n, place in enumerate(at.tolist()):
            out[:, place] = (out[:, place] + g[:, n]).to(dtype).to(x.dtype)
        return out, None

    return with_gradient(lambda x, at: x.index_select(1, at), gradient)


ENTRIES: tuple[Entry, ...] = (
    SEGMENTS.healthy("segment by segment"),
    SEGMENTS.healthy("by prefix sums", once(by_difference), dtypes=NARROW),
    SEGMENTS.fault("empty unwritten", "an empty segment holds old memory", once(partial(segments, empty=0.5))),
    SEGMENTS.fault(
        "ends one off", "segments end one row late", once(partial(segments, ends=(0, 18, 18, 19, 61, 97, 100)))
    ),
    SEGMENTS.fault("mean", "divides by the rows", once(partial(segments, mean=True))),
    SEGMENTS.fault(
        "sums in 16 bit",
        "adds up in the tensor's dtype",
        lambda x: once(partial(segments, add=lambda rows: added_in(x.dtype, rows)))(x),
        dtypes=NARROW,
        inputs=lambda dtype, g: [normal(g, dtype, 100, 40, mean=1.0)],
    ),
    BAG.healthy("own backward"),
    BAG.fault("last bag short", "the last bag ends at 63", once(partial(bag, last=63))),
    BAG.fault("mean", "divides by the tokens", once(partial(bag, mode="mean"))),
    BAG.fault("unweighted", "tokens have no weights", once(partial(bag, weighted=False))),
    BAG.wrong_gradient("gradient unweighted", "the table's gradient lacks the weights", bag_gradient(False)),
    BAG.wrong_gradient("last write wins", "tokens that come twice overwrite the gradient", bag_gradient(each="last")),
    PUT.healthy("valid slots"),
    PUT.fault(
        "padding written",
        "padding is written to the last slot",
        put(lambda slot, new: (slot % 40, new)),
        inputs=one_padded,
    ),
    PUT.fault("slot of 0 as padding", "slot 0 is not written", put(lambda slot, new: (slot[slot > 0], new[slot > 0]))),
    PUT.fault(
        "rows not aligned",
        "rows behind padding are one off",
        put(lambda slot, new: (slot[slot >= 0], new[: int((slot >= 0).sum())])),
    ),
    NODES.healthy("one-hot product"),
    NODES.fault("node without edges", "a node without messages is 0 / 0", once(partial(mean_of, least=0.0))),
    NODES.fault("last edge lost", "the last message is not added", once(partial(mean_of, lost=True))),
    NODES.fault("one more in the count", "the old value counts", once(self_counted)),
    EDGES.healthy("largest of the node"),
    EDGES.fault("largest of all", "the maximum is that of all edges", once(partial(attended, high="all"))),
    EDGES.fault("no maximum", "exp overflows", once(partial(attended, high="none"))),
    PICKED.healthy("own backward"),
    PICKED.wrong_gradient(
        "gradient in 16 bit",
        "the gradient is added up in bfloat16",
        summed_in(BF16),
        dtypes=(torch.float32, torch.float16),
    ),
    PICKED.fault("row of the next", "picks from the next row", once(lambda x, at: x[:, at].roll(1, 0))),
    PICKED.fault(
        "clamped",
        "the last place is not reached",
        once(lambda x, at: x[:, at.clamp_max(48)]),
        inputs=lambda dtype, g: [normal(g, dtype, 8, 50, 6), torch.cat([integers(g, 50, 89), torch.tensor([49])])],
    ),
)
