"""Training steps of torch's."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.up, self.down = (nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d),
                                                   nn.Linear(4 * d, d))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        parts = self.qkv(self.first(x)).split(d, dim=-1)
        query, key, value = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, words: int, d: int, heads: int, layers: int, t: int) -> None:
        super().__init__()
        self.tokens, self.places, self.last = nn.Embedding(words, d), nn.Embedding(t, d), nn.LayerNorm(d)
        self.blocks, self.head = nn.ModuleList(Block(d, heads) for _ in range(layers)), nn.Linear(d, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def training(words: int, d: int, heads: int, layers: int, t: int, batch: int) -> Callable[[], None]:
    """One training step of a model of that size, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT(words, d, heads, layers, t)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, words, (batch, t))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step


def forward() -> Callable[[], None]:
    """The forward of the tiny GPT alone, without gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, tokens = GPT(64, 32, 4, 2, 16), torch.randint(0, 64, (2, 16))

    @torch.no_grad()
    def step() -> None:
        model(tokens)

    return step


def convolutions() -> Callable[[], None]:
    """A training step of a small CNN."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(6)]
    model, images = nn.Sequential(*(layer for part in parts for layer in part)), torch.randn(2, 8, 16, 16)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()

    return step


def calls() -> Callable[[], None]:
    """1,200 calls without gradients, on tensors of 8,192 elements."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first, weight, bias = torch.randn(64, 128), torch.randn(128, 128) / 12, torch.randn(128)

    @torch.no_grad()
    def step() -> None:
        x = first
        for _ in range(300):
            x = x + F.layer_norm(F.gelu(F.linear(x, weight, bias)), (128,))

    return step


def one_call() -> Callable[[], None]:
    """What each step costs, whatever it calls."""
    torch.set_num_threads(1)
    one = torch.ones(1)

    def step() -> None:
        torch.neg(one)

    return step


def empty_mode(repeats: int = 20) -> tuple[float, float]:
    """Seconds of a small addition, alone and inside a function mode that does nothing: the least of several."""

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    one = torch.ones(16, 16)
    alone = min(timeit.repeat(lambda: torch.add(one, one), number=1000, repeat=repeats))
    with Mode():
        inside = min(timeit.repeat(lambda: torch.add(one, one), number=1000, repeat=repeats))
    return alone / 1000, inside / 1000


# Steps that are measured beside those of the two models.
OTHERS: Mapping[str, Callable[[], Callable[[], None]]] = {
    "tiny GPT, forward alone": forward,
    "CNN": convolutions,
    "1,200 calls": calls,
    "1 call": one_call,
}
