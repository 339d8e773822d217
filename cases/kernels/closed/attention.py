"""Attention in training: packed batches, sinks, soft caps with a window, learned biases: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, NARROW, Entry, Task
from cases.kernels.making import normal
from cases.kernels.rounding import once, tiles, up, with_gradient

Tensor = torch.Tensor


def soft(scores: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores, -1) @ v


def hidden(seen: Tensor) -> Tensor:
    """What is added to scores: -inf where a key is not seen."""
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)


def online(scores: Tensor, v: Tensor, block: int = 16) -> Tensor:
    """Blocks of keys with a running maximum."""
    high = torch.full_like(scores[..., :1], -torch.inf)
    total, out = torch.zeros_like(high), torch.zeros(*scores.shape[:-1], v.shape[-1], dtype=v.dtype)
    for part, values in zip(tiles(scores, block), tiles(v, block, -2), strict=True):
        higher = torch.maximum(high, part.amax(-1, keepdim=True))
        safe = higher.masked_fill(higher == -torch.inf, 0.0)
        p, factor = torch.exp(part - safe), torch.exp(high - safe)
        total, out, high = total * factor + p.sum(-1, keepdim=True), out * factor + p @ values, higher
    return out / total


QUERIES, KEYS = (0, 5, 6, 20, 30), (0, 19, 22, 36, 60)


def chunks(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Four sequences, packed; 6 query heads, 2 key heads; earlier keys come from a cache."""
    return [normal(g, dtype, 6, 30, 16, scale=1.5), normal(g, dtype, 2, 60, 16), normal(g, dtype, 2, 60, 16)]


def packed(align: Any = None, first: int = 0, group: Any = None) -> Any:
    """Sequence by sequence; align(n, m): the newest key that the first query sees."""
    newest = align or (lambda n, m: m - n)
    spread = group or (lambda x: x.repeat_interleave(3, 0))

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outs = []
        for s in range(4):
            start = KEYS[s] + (first if s else 0)
            rows, keys, values = q[:, QUERIES[s] : QUERIES[s + 1]], k[:, start : KEYS[s + 1]], v[:, start : KEYS[s + 1]]
            n, m = rows.shape[1], keys.shape[1]
            seen = torch.arange(m) <= torch.arange(n)[:, None] + newest(n, m)
            outs.append(online(rows @ spread(keys).mT / 4 + hidden(seen), spread(values)))
        return torch.cat(outs, 1)

    return run


def packed_reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    own = torch.bucketize(torch.arange(30), torch.tensor(QUERIES[1:]), right=True)
    other = torch.bucketize(torch.arange(60), torch.tensor(KEYS[1:]), right=True)
    ends = torch.tensor(KEYS[1:])[own] - torch.tensor(QUERIES[1:])[own] + torch.arange(30)
    seen = (own[:, None] == other) & (torch.arange(60) <= ends[:, None])
    return soft(q @ k.repeat_interleave(3, 0).mT / 4 + hidden(seen), v.repeat_interleave(3, 0))


PACKED = Task("chunked prefill", "attention", once(packed()), packed_reference, chunks, backward=True)


def with_sink(sunk: float = 1.0, shift: float = 0.0) -> Any:
    """A learned logit a head takes part in the sum alone."""

    def run(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
        scores = (q @ k.mT / 4).masked_fill(torch.ones(40, 40).triu(1) > 0, -torch.inf)
        high = torch.maximum(scores.amax(-1, keepdim=True), sink[:, None, None])
        e = torch.exp(scores - high)
        return (e @ v) / (e.sum(-1, keepdim=True) + sunk * torch.exp(sink[:, None, None] - high * (1 - shift)))

    return run


def sink_reference(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    scores = (q @ k.mT / 4).masked_fill(torch.ones(40, 40).triu(1) > 0, -torch.inf)
    return torch.softmax(torch.cat([scores, sink[:, None, None].expand(4, 40, 1)], -1), -1)[..., :-1] @ v


SINK = Task(
    "attention sink",
    "attention",
    once(with_sink()),
    sink_reference,
    lambda dtype, g: [*(normal(g, dtype, 4, 40, 16, scale=1.5) for _ in range(3)), normal(g, dtype, 4, mean=1.0)],
    backward=True,
)

APART48 = torch.arange(48)[:, None] - torch.arange(48)

NEAR = (APART48 >= 0) & (APART48 <= 9)


def capped(cap: Tensor | float, seen: Tensor = NEAR, late: bool = False) -> Any:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / 4
        if late:
            return soft(cap * torch.tanh((scores + hidden(seen)) / cap), v)
        return online(cap * torch.tanh(scores / cap) + hidden(seen), v)

    return run


def capped_gradient(g: Tensor, q: Tensor, k: Tensor, v: Tensor, slope: bool = True, seen: Tensor = NEAR) -> Any:
    t = torch.tanh(q @ k.mT / 4 / 8)
    p = torch.softmax(8 * t + hidden(NEAR), -1)
    dp = g @ v.mT
    ds = torch.where(seen, p * (dp - (dp * p).sum(-1, keepdim=True)) * ((1 - t * t) if slope else 1.0) / 4, 0.0)
    return ds @ k, ds.mT @ q, p.mT @ g


CAPPED = Task(
    "soft cap and window",
    "attention",
    once(capped(8.0)),
    lambda q, k, v: soft((8 * torch.tanh(q @ k.mT / 4 / 8)).masked_fill(~NEAR, -torch.inf), v),
    lambda dtype, g: [*(normal(g, dtype, 4, 48, 16, scale=2.5) for _ in range(2)), normal(g, dtype, 4, 48, 16)],
    backward=True,
)


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return soft(q @ k.mT / 4 + bias, v)


def bias_gradient(reduce: Any) -> Any:
    def gradient(g: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Any:
        p = torch.softmax(q @ k.mT / 4 + bias, -1)
        dp = g @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return ds @ k / 4, ds.mT @ q / 4, p.mT @ g, reduce(ds)

    return with_gradient(biased, gradient)


BIASED = Task(
    "learned bias",
    "attention",
    bias_gradient(lambda ds: ds.sum(0)),
    biased,
    lambda dtype, g: [*(normal(g, dtype, 3, 2, 24, 16, scale=1.3) for _ in range(3)), normal(g, dtype, 2, 24, 24)],
    backward=True,
)


def slopes(own: bool = False) -> Tensor:
    """Of 6 heads: those of 4, and every other one of 8."""
    if own:
        return 2 ** (-8 * torch.arange(1.0, 7.0) / 6)
    return torch.cat([2 ** (-2 * torch.arange(1.0, 5.0)), 2 ** -torch.tensor([1.0, 3.0])])


def encoder(bias: Tensor, cut: bool = False) -> Any:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / 4 + bias
        return soft(scores, v) if not cut else online(scores, v, 8)

    return run


APART = torch.arange(32.0)[:, None] - torch.arange(32.0)

ENCODER = Task(
    "ALiBi in an encoder",
    "attention",
    once(encoder(-slopes()[:, None, None] * APART.abs(), cut=True)),
    encoder(-slopes()[:, None, None] * APART.abs()),
    lambda dtype, g: [normal(g, dtype, 6, 32, 16) for _ in range(3)],
    backward=True,
)


def uneven(q: Tensor, k: Tensor, v: Tensor, scale: float = 24**-0.5) -> Tensor:
    """Heads of 24 in tiles of 32, values of 16."""
    return online(F.pad(q, (0, 8)) @ F.pad(k, (0, 8)).mT * scale, v)


def narrow_probabilities(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As tensor cores take them; sums and products in float32."""
    scores = up(q) @ up(k).mT * 24**-0.5
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (up(e.to(v.dtype)) @ up(v) / e.sum(-1, keepdim=True)).to(v.dtype)


UNEVEN = Task(
    "values narrower than keys",
    "attention",
    once(uneven),
    F.scaled_dot_product_attention,
    lambda dtype, g: [normal(g, dtype, 2, 3, 40, n, scale=1.6) for n in (24, 24, 16)],
    "Functional.scaled_dot_product_attention",
    backward=True,
)

ENTRIES: tuple[Entry, ...] = (
    PACKED.healthy("sequence by sequence"),
    PACKED.fault(
        "from the left", "the first query sees the first key alone, whatever the cache", once(packed(lambda n, m: 0))
    ),
    PACKED.fault("one key ahead", "sees the next token where the lengths differ", once(packed(lambda n, m: m - n + 1))),
    PACKED.fault("first key lost", "from the second sequence on the first key is left out", once(packed(first=1))),
    PACKED.fault(
        "neighbour's key", "from the second sequence on a key of the one before takes part", once(packed(first=-1))
    ),
    PACKED.wrong_gradient(
        "mean over the group",
        "the key's and value's gradients are the mean over the query heads",
        once(packed(group=lambda x: (x / 3 + (x * 2 / 3).detach()).repeat_interleave(3, 0))),
    ),
    SINK.healthy("sum with a term more"),
    SINK.healthy("as a key of zero", once(lambda *a: sink_reference(*a))),
    SINK.fault("no sink", "leaves the sink out of the sum", once(with_sink(0.0))),
    SINK.fault("sink not shifted", "the sink is not taken relative to the maximum", once(with_sink(1.0, 1.0))),
    SINK.fault(
        "sink twice",
        "the sink is counted by both halves of the keys",
        once(with_sink(2.0)),
    ),
    CAPPED.healthy("online"),
    CAPPED.healthy("own backward", with_gradient(capped(8.0), capped_gradient)),
    CAPPED.fault("cap after the mask", "hidden keys take part at the cap", once(capped(8.0, late=True))),
    CAPPED.fault(
        "window from the tile",
        "queries of a tile of 4 share the window of its first",
        once(capped(8.0, NEAR | ((torch.arange(48) >= (torch.arange(48) // 4 * 4)[:, None] - 9) & (APART48 >= 0)))),
    ),
    CAPPED.wrong_gradient(
        "no slope of the cap",
        "the backward lacks the derivative of tanh",
        with_gradient(capped(8.0), partial(capped_gradient, slope=False)),
    ),
    CAPPED.wrong_gradient(
        "window one narrower in the backward",
        "the backward leaves out the oldest key",
        with_gradient(capped(8.0), partial(capped_gradient, seen=NEAR.triu(-8))),
    ),
    BIASED.healthy("own backward"),
    BIASED.healthy("kernel by kernel", biased, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    BIASED.wrong_gradient(
        "bias gradient of one image",
        "the bias' gradient is the last batch's",
        bias_gradient(lambda ds: ds[-1]),
    ),
    BIASED.wrong_gradient(
        "bias gradient scaled", "the bias' gradient is scaled with the scores", bias_gradient(lambda ds: ds.sum(0) / 4)
    ),
    BIASED.fault("bias transposed", "reads the bias by columns", once(lambda q, k, v, b: biased(q, k, v, b.mT))),
    BIASED.fault("bias before the scale", "scales the bias", once(lambda q, k, v, b: biased(q, k, v, b / 4))),
    ENCODER.healthy("blocks of 8"),
    ENCODER.fault(
        "distance with its sign",
        "later keys are favoured",
        once(encoder(-slopes()[:, None, None] * APART)),
    ),
    ENCODER.fault(
        "slopes by sixths",
        "slopes of 6 heads are 2^(-8 i / 6)",
        once(encoder(-slopes(True)[:, None, None] * APART.abs())),
    ),
    UNEVEN.healthy("padded heads"),
    UNEVEN.healthy("probabilities in 16 bit", narrow_probabilities, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    UNEVEN.fault("scale of the tile", "scales by the padded 32", once(partial(uneven, scale=32**-0.5))),
    UNEVEN.fault("scale of the values", "scales by the values' 16", once(partial(uneven, scale=16**-0.5))),
)
