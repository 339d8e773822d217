"""Mixture of experts: gating, dispatch, combination, balance: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.rounding import once

Tensor = torch.Tensor


def gate(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest probabilities, made to sum to 1, and their experts."""
    values, experts = torch.topk(torch.softmax(x, -1), k)
    return values / values.sum(-1, keepdim=True), experts


def gate_of_logits(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mixtral's: the softmax of the k largest logits."""
    values, experts = torch.topk(x, k)
    return torch.softmax(values, -1), experts


GATE = Task("gate", "experts", once(gate_of_logits), gate, lambda dtype, g: [normal(g, dtype, 60, 16, scale=1.5), 2])

TOPK = Task(
    "top-k",
    "experts",
    lambda x, k: tuple(torch.topk(x, k)),
    lambda x, k: tuple(torch.topk(x, k)),
    lambda dtype, g: [(integers(g, 12, 60, 16) / 4).to(dtype), 4],
    "Torch.topk",
    loose=True,
)


def combine(y: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
    """y: each expert's output for each token."""
    tokens = torch.arange(len(experts))[:, None]
    return (y[experts, tokens] * weights[..., None]).sum(1)


def combine_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    experts = torch.rand(40, 6, generator=g).argsort(-1)[:, :2]
    return [normal(g, dtype, 6, 40, 24), uniform(g, dtype, 40, 2), experts]


def by_scatter(y: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
    """Expert by expert, into an accumulator."""
    out = torch.zeros_like(y[0])
    for number in range(len(y)):
        share = (weights * (experts == number)).sum(-1, keepdim=True)
        out = out + y[number] * share
    return out


COMBINE = Task("combination", "experts", once(by_scatter), combine, combine_inputs, backward=True)


def balance(p: Tensor, experts: Tensor) -> Tensor:
    """Switch's auxiliary loss."""
    share = F.one_hot(experts, p.shape[-1]).to(p.dtype).mean(0)
    return p.shape[-1] * (share * p.mean(0)).sum()


BALANCE = Task(
    "balance loss",
    "experts",
    once(lambda p, e: (torch.bincount(e, minlength=8).to(p.dtype) * p.sum(0)).sum() * 8 / len(p) ** 2),
    balance,
    lambda dtype, g: [torch.softmax(normal(g, torch.float64, 100, 8), -1).to(dtype), integers(g, 8, 100)],
)


def dispatch(x: Tensor, experts: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Tokens in the order of their experts, stable, and how many each has."""
    return x[torch.argsort(experts, stable=True)], torch.bincount(experts, minlength=count)


DISPATCH = Task(
    "dispatch",
    "experts",
    lambda x, e, n: (torch.cat([x[e == i] for i in range(n)]), torch.stack([(e == i).sum() for i in range(n)])),
    dispatch,
    lambda dtype, g: [normal(g, dtype, 50, 12), integers(g, 5, 50), 6],
    backward=True,
)
