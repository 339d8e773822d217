"""Training steps of Paddle's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn


class Block(nn.Layer):  # type: ignore[misc]
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.up, self.down = (nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d),
                                                   nn.Linear(4 * d, d))  # fmt: skip

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        query, key, value = (part.reshape([b, t, self.heads, -1]) for part in self.qkv(self.first(x)).split(3, axis=-1))
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(y.reshape([b, t, d]))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate=True))


class GPT(nn.Layer):  # type: ignore[misc]
    def __init__(self, words: int, d: int, heads: int, layers: int, t: int) -> None:
        super().__init__()
        self.tokens, self.places, self.last = nn.Embedding(words, d), nn.Embedding(t, d), nn.LayerNorm(d)
        self.blocks = nn.LayerList(Block(d, heads) for _ in range(layers))
        self.head = nn.Linear(d, words, bias_attr=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.places(paddle.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


def training(words: int, d: int, heads: int, layers: int, t: int, batch: int) -> Callable[[], None]:
    """One training step of a model of that size; Paddle's kernels run on one thread."""
    paddle.seed(0)
    model = GPT(words, d, heads, layers, t)
    optimizer = paddle.optimizer.AdamW(parameters=model.parameters())
    tokens = paddle.randint(0, words, [batch, t])

    def step() -> None:
        optimizer.clear_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return step


OTHERS: Mapping[str, Callable[[], Callable[[], None]]] = {}
