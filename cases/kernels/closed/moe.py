"""Experts: choice by groups, capacity, blocks of tokens, gated experts, router losses: closed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import ACCELERATOR, F16, F32, NARROW, Entry, Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.rounding import once, up, with_gradient

Tensor = torch.Tensor


def grouped(
    logits: Tensor, bias: Tensor, scored: bool = True, limit: bool = True, normed: bool = True, of: str = "scores"
) -> tuple[Tensor, Tensor]:
    """Two of four groups by their two best, then three experts; the bias chooses but does not weigh."""
    scores = torch.sigmoid(logits)
    choice = scores + bias if scored else scores
    groups = choice.unflatten(1, (4, 4))
    best = groups.topk(2, -1)[0].sum(-1) if of == "scores" else groups.amax(-1)
    allowed = torch.zeros_like(best, dtype=torch.bool).scatter(1, best.topk(2, -1)[1], True)
    hidden = groups.masked_fill(~allowed[..., None], -torch.inf).flatten(1) if limit else choice
    chosen = hidden.topk(3, -1)[1]
    weights = scores.gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True) if normed else weights
    return torch.zeros_like(scores).scatter(1, chosen, weights * 2.5), chosen.sort(-1)[0]


def grouped_reference(logits: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    outs, places = [], []
    for row in torch.sigmoid(logits):
        choice = row + bias
        best = torch.stack([part.sort(descending=True)[0][:2].sum() for part in choice.split(4)])
        groups = best.argsort(descending=True)[:2]
        kept = torch.full_like(choice, -torch.inf)
        for group in groups.tolist():
            kept[group * 4 : group * 4 + 4] = choice[group * 4 : group * 4 + 4]
        chosen = kept.argsort(descending=True)[:3]
        out = torch.zeros_like(row)
        out[chosen] = 2.5 * row[chosen] / row[chosen].sum()
        outs.append(out)
        places.append(chosen.sort()[0])
    return torch.stack(outs), torch.stack(places)


GROUPED = Task(
    "choice by groups",
    "experts",
    once(grouped),
    grouped_reference,
    lambda dtype, g: [normal(g, dtype, 64, 16, scale=1.5), normal(g, dtype, 16, scale=0.3)],
)


def capacity(weights: Tensor, expert: Tensor, limit: int = 7, first: str = "order", again: bool = False) -> Any:
    """Tokens beyond an expert's capacity are dropped, the later ones; slots within each expert."""
    hot = F.one_hot(expert, 8)
    if first == "weight":
        order = weights.argsort(descending=True, stable=True)
        slot = torch.empty_like(expert)
        slot[order] = ((hot[order].cumsum(0) - 1) * hot[order]).sum(-1)
    else:
        counted = hot.flip(0).cumsum(0).flip(0) if first == "last" else hot.cumsum(0)
        slot = ((counted - 1) * hot).sum(-1)
    kept = slot < limit
    return torch.where(kept, weights, 0.0), torch.where(kept, slot % limit if again else slot, -1)


def capacity_reference(weights: Tensor, expert: Tensor) -> tuple[Tensor, Tensor]:
    used, out, slots = [0] * 8, [], []
    for weight, own in zip(weights, expert.tolist(), strict=True):
        fits = used[own] < 7
        out.append(weight if fits else weight * 0)
        slots.append(used[own] if fits else -1)
        used[own] += 1
    return torch.stack(out), torch.tensor(slots)


CAPACITY = Task(
    "capacity",
    "experts",
    capacity,
    capacity_reference,
    lambda dtype, g: [uniform(g, dtype, 80, low=0.1), integers(g, 8, 80)],
)


def blocks(expert: Tensor, size: int = 8, up_to: bool = True, pad: int = 60) -> tuple[Tensor, Tensor]:
    """Tokens in order of their expert, each expert's padded to whole blocks; the expert of each block."""
    rows: list[int] = []
    owners: list[int] = []
    for own in range(5):
        tokens = (expert == own).nonzero()[:, 0].tolist()
        count = -(-len(tokens) // size) if up_to else len(tokens) // size + 1
        rows += tokens + [pad] * (count * size - len(tokens))
        owners += [own] * count
    return torch.tensor(rows), torch.tensor(owners)


def blocks_reference(expert: Tensor) -> tuple[Tensor, Tensor]:
    counts = torch.bincount(expert, minlength=5)
    whole = (counts + 7) // 8
    rows = torch.full((int(whole.sum()) * 8,), 60)
    starts = F.pad(whole.cumsum(0), (1, 0)) * 8
    order = torch.argsort(expert, stable=True)
    inner = torch.arange(60) - F.pad(counts.cumsum(0), (1, 0))[expert[order]]
    rows[starts[expert[order]] + inner] = order
    return rows, torch.repeat_interleave(torch.arange(5), whole)


BLOCKS = Task(
    "blocks of tokens",
    "experts",
    blocks,
    blocks_reference,
    lambda dtype, g: [torch.tensor([0] * 16 + [1] * 9 + [2] * 8 + [4] * 27)[torch.randperm(60, generator=g)]],
    dtypes=(F32,),
)


def run_experts(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [
        normal(g, dtype, 40, 24),
        normal(g, dtype, 4, 24, 32, scale=0.3),
        normal(g, dtype, 4, 16, 24, scale=0.3),
        integers(g, 4, 40, 2),
        uniform(g, dtype, 40, 2, low=0.2),
    ]


def experts(
    x: Tensor,
    into: Tensor,
    out: Tensor,
    chosen: Tensor,
    weights: Tensor,
    when: str = "late",
    mixed: bool = False,
    lost: int = 40,
) -> Tensor:
    """Expert by expert: a gated layer, whose halves lie side by side; weights after it."""
    total = torch.zeros_like(x)
    for n in range(4):
        for k in range(2):
            here = (chosen[:, k] == n) & (torch.arange(40) < (lost if n == 3 else 40))
            rows, w = x[here], weights[here, k, None]
            both = (rows * w if when == "early" else rows) @ into[n]
            gate, value = (both[:, ::2], both[:, 1::2]) if mixed else both.chunk(2, -1)
            y = (F.silu(gate) * value) @ out[n]
            total = total.index_add(0, here.nonzero()[:, 0], y if when == "early" else y * w)
    return total


def experts_reference(x: Tensor, into: Tensor, out: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    gate, value = torch.einsum("td,ndh->tnh", x, into).chunk(2, -1)
    y = torch.einsum("tnh,nhd->tnd", F.silu(gate) * value, out)
    share = torch.zeros(40, 4, dtype=x.dtype).scatter_add(1, chosen, weights)
    return (y * share[..., None]).sum(1)


def in_two_products(x: Tensor, into: Tensor, out: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """What lies between the products is stored in 16 bit, as each expert's output is."""
    gate, value = (up(x)[:, None, None] @ up(into)[chosen]).to(x.dtype).chunk(2, -1)
    hidden = (F.silu(up(gate)) * up(value)).to(x.dtype)
    y = (up(hidden) @ up(out)[chosen])[:, :, 0].to(x.dtype)
    return (up(y) * up(weights)[..., None]).sum(1).to(x.dtype)


EXPERTS = Task("gated experts", "experts", once(experts), experts_reference, run_experts, backward=True)


def balance(
    logits: Tensor, mask: Tensor, masked: bool = True, by: str = "counts", z: bool = True, top: int = 2
) -> Tensor:
    """Shares of the chosen times mean probabilities, and the square of the log-sum-exp; padding does not count."""
    kept = mask.to(logits.dtype) if masked else torch.ones(mask.shape).to(logits.dtype)
    p = torch.softmax(logits, -1)
    chosen = F.one_hot(p.topk(2, -1)[1], 8).sum(1).to(logits.dtype)
    mean = (p * kept[:, None]).sum(0) / kept.sum()
    share = (chosen * kept[:, None]).sum(0) / kept.sum() / 2 if by == "counts" else mean
    lse = torch.logsumexp(logits, -1) if z else logits.amax(-1)
    return 8 * (share * mean).sum() + 0.01 * (lse.square() * kept).sum() / kept.sum()


def routed(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    """Padded tokens all want one expert."""
    mask = torch.arange(90) % 9 > 1
    logits = normal(g, torch.float64, 90, 8, scale=2.0, mean=0.5)
    logits[:, 3] += 6.0 * ~mask
    logits[:, 6] += 1.5
    return [logits.to(dtype), mask]


BALANCE = Task(
    "router losses",
    "experts",
    once(balance),
    lambda logits, mask: balance(logits[mask], torch.ones(int(mask.sum()), dtype=torch.bool)),
    routed,
    backward=True,
)


def unpermuted(y: Tensor, order: Tensor, weights: Tensor) -> Tensor:
    """Rows in order of their expert go back to their tokens."""
    back = torch.empty_like(y).index_copy(0, order, y)
    return (back.view(30, 2, -1) * weights[..., None]).sum(1)


def unpermuted_gradient(placed: bool = True, weighted: bool = True) -> Any:
    def gradient(g: Tensor, y: Tensor, order: Tensor, weights: Tensor) -> Any:
        rows = (g[:, None] * (weights[..., None] if weighted else 1.0)).expand(30, 2, y.shape[1]).flatten(0, 1)
        back = torch.empty_like(y).index_copy(0, order, y).view(30, 2, -1)
        return rows[order] if placed else rows[order.argsort()], None, (g[:, None] * back).sum(-1)

    return with_gradient(unpermuted, gradient)


UNPERMUTED = Task(
    "back to the tokens",
    "experts",
    unpermuted_gradient(),
    lambda y, order, weights: (y[order.argsort()].view(30, 2, -1) * weights[..., None]).sum(1),
    lambda dtype, g: [normal(g, dtype, 60, 20), torch.randperm(60, generator=g), uniform(g, dtype, 30, 2, low=0.1)],
    backward=True,
)

ENTRIES: tuple[Entry, ...] = (
    GROUPED.healthy("by masks"),
    GROUPED.fault("no bias", "the bias does not choose", once(partial(grouped, scored=False))),
    GROUPED.fault("groups not limited", "experts of all groups are chosen", once(partial(grouped, limit=False))),
    GROUPED.fault("not normalised", "weights do not add up", once(partial(grouped, normed=False))),
    GROUPED.fault("groups by one", "groups are chosen by their best expert", once(partial(grouped, of="largest"))),
    GROUPED.fault(
        "bias weighs",
        "the bias is part of the weights",
        once(lambda x, b: grouped(torch.logit((torch.sigmoid(x) + b).clamp(1e-3, 1 - 1e-3)), b * 0)),
    ),
    CAPACITY.healthy("running counts"),
    CAPACITY.fault("one more fits", "8 tokens fit", partial(capacity, limit=8)),
    CAPACITY.fault("later ones first", "earlier tokens are dropped", partial(capacity, first="last")),
    CAPACITY.fault("heavier ones first", "lighter tokens are dropped", partial(capacity, first="weight")),
    BLOCKS.healthy("expert by expert"),
    BLOCKS.fault("a block too many", "whole experts have an empty block", partial(blocks, up_to=False)),
    BLOCKS.fault("padding of token 0", "padded places name the first token", partial(blocks, pad=0)),
    EXPERTS.healthy("expert by expert"),
    EXPERTS.healthy("16 bit between the products", in_two_products, dtypes=NARROW, devices=ACCELERATOR, backward=False),
    EXPERTS.fault("weights early", "weights are applied before the layer", once(partial(experts, when="early"))),
    EXPERTS.fault("halves interleaved", "gate and value take turns", once(partial(experts, mixed=True))),
    EXPERTS.fault("last block", "the last expert lacks the tokens from 16 on", once(partial(experts, lost=16))),
    BALANCE.healthy("with a mask"),
    BALANCE.fault("padding counted", "padded tokens count", once(partial(balance, masked=False))),
    BALANCE.fault(
        "probabilities squared",
        "shares are the mean probabilities",
        once(partial(balance, by="mean")),
        dtypes=(F32, F16),
    ),
    BALANCE.fault("largest logit", "takes the largest in place of the log-sum-exp", once(partial(balance, z=False))),
    UNPERMUTED.healthy("own backward"),
    UNPERMUTED.fault(
        "order turned", "places are turned round", once(lambda y, order, w: unpermuted(y, order.argsort(), w))
    ),
    UNPERMUTED.wrong_gradient("gradient turned", "gradients go to the turned places", unpermuted_gradient(False)),
    UNPERMUTED.wrong_gradient("gradient unweighted", "gradients lack the weights", unpermuted_gradient(weighted=False)),
)
