"""Small models of Paddle's of every kind, each with one training step that gives its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.incubate.nn.functional import swiglu

Step = Callable[[], Any]


class Block(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        parts = paddle.split(self.qkv(self.first(x)), 3, axis=-1)
        q, k, v = (part.reshape([b, t, 2, 8]).transpose([0, 2, 1, 3]) for part in parts)
        scores = paddle.matmul(q, k, transpose_y=True) / 8**0.5 + paddle.triu(paddle.full([t, t], -1e9), 1)
        y = paddle.matmul(F.softmax(scores, axis=-1), v).transpose([0, 2, 1, 3]).reshape([b, t, d])
        x = x + self.proj(y)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), 0.1)


class GPT(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(32, 16), nn.Embedding(8, 16)
        self.blocks, self.last = nn.Sequential(Block(), Block()), nn.LayerNorm(16)

    def forward(self, tokens: Any) -> Any:
        x = self.blocks(self.tokens(tokens) + self.places(paddle.arange(8)))
        return paddle.matmul(self.last(x), self.tokens.weight, transpose_y=True)


def trained(model: nn.Layer, optimizer: Any, loss: Step) -> Step:
    def step() -> Any:
        value = loss()
        value.backward()
        optimizer.step()
        optimizer.clear_grad()
        return value

    return step


def gpt() -> Step:
    model, tokens = GPT(), paddle.randint(0, 32, [2, 8])
    optimizer = paddle.optimizer.AdamW(
        1e-2, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0), weight_decay=0.1
    )
    return trained(model, optimizer, lambda: F.cross_entropy(model(tokens).reshape([-1, 32]), tokens.flatten()))


class RMSNorm(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([16], default_initializer=nn.initializer.Constant(1.0))

    def forward(self, x: Any) -> Any:
        return x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Llama(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.first, self.second = nn.Embedding(32, 16), RMSNorm(), RMSNorm()
        self.qkv, self.proj = nn.Linear(16, 48, bias_attr=False), nn.Linear(16, 16, bias_attr=False)
        self.gate, self.down = nn.Linear(16, 64, bias_attr=False), nn.Linear(32, 16, bias_attr=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        b, t, d = x.shape
        q, k, v = (part.reshape([b, t, 2, 8]) for part in self.qkv(self.first(x)).chunk(3, axis=-1))
        angles = paddle.outer(paddle.arange(t, dtype="float32"), 100.0 ** (-paddle.arange(0, 4, dtype="float32") / 4))
        angles = paddle.concat([angles, angles], -1).reshape([1, t, 1, 8])
        q, k = (one * angles.cos() + rotated(one) * angles.sin() for one in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).reshape([b, t, d])
        x = x + self.proj(y)
        one, two = self.gate(self.second(x)).chunk(2, axis=-1)
        x = x + self.down(swiglu(one, two))
        return paddle.matmul(x, self.tokens.weight.t())


def rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    return paddle.concat([-x[..., half:], x[..., :half]], axis=-1)


def llama() -> Step:
    model, tokens = Llama(), paddle.randint(0, 32, [2, 8])
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=model.parameters())
    return trained(
        model, optimizer, lambda: F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    )


def cnn() -> Step:
    model = nn.Sequential(
        *(nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU(), nn.MaxPool2D(2)),
        *(nn.Conv2D(8, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.Silu(), nn.AdaptiveAvgPool2D(2)),
        *(nn.Flatten(), nn.Linear(32, 5)),
    )
    x, target = paddle.randn([4, 3, 8, 8]), paddle.randint(0, 5, [4])
    optimizer = paddle.optimizer.Momentum(0.1, parameters=model.parameters(), weight_decay=1e-4)
    return trained(model, optimizer, lambda: F.cross_entropy(model(x), target))


def lstm() -> Step:
    layer, head = nn.LSTM(6, 8, num_layers=2), nn.Linear(8, 3)
    x, target = paddle.randn([4, 5, 6]), paddle.randn([4, 3])
    optimizer = paddle.optimizer.Adam(1e-2, parameters=[*layer.parameters(), *head.parameters()])
    return trained(head, optimizer, lambda: F.mse_loss(head(layer(x)[0][:, -1]), target))


ALL: dict[str, Callable[[], Step]] = {"gpt": gpt, "llama": llama, "cnn": cnn, "lstm": lstm}
