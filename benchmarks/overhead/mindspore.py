"""Training steps of MindSpore's on its CPU, which has no kernel of mint's embedding, layer_norm and gelu.

Each call waits for its kernel. Otherwise MindSpore's threads wait for one another by spinning, and a step of two cores
that others use as well takes ten times as long, or twenty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

F = mint.nn.functional
_random = np.random.default_rng(0)
mindspore.runtime.launch_blocking()
# Built for NumPy 1, MindSpore's first call raises with NumPy 2.
with suppress(SystemError):
    mint.mul(Tensor(np.ones(1, np.float32)), 1.0)


def weight(*shape: int) -> Any:
    return Parameter((_random.standard_normal(shape) * 0.02).astype(np.float32))


def normed(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - mint.mean(x, -1, True)
    return centred * mint.rsqrt(mint.mean(mint.square(centred), -1, True) + 1e-5) * scale + shift


class Block(nn.Cell):  # type: ignore[misc]
    def __init__(self, d: int, heads: int, mask: Any) -> None:
        super().__init__()
        self.heads, self.mask, self.scale = heads, mask, (d // heads) ** -0.5
        self.qkv, self.proj, self.up, self.down = weight(3 * d, d), weight(d, d), weight(4 * d, d), weight(d, 4 * d)
        self.scales, self.shifts = Parameter(np.ones((2, d), np.float32)), Parameter(np.zeros((2, d), np.float32))

    def construct(self, x: Any) -> Any:
        b, t, d = x.shape
        found = F.linear(normed(x, self.scales[0], self.shifts[0]), self.qkv)
        query, key, value = (
            part.reshape(b, t, self.heads, d // self.heads).permute(0, 2, 1, 3) for part in mint.split(found, d, -1)
        )
        scores = mint.matmul(query, key.permute(0, 1, 3, 2)) * self.scale + self.mask
        joined = mint.matmul(F.softmax(scores, dim=-1), value).permute(0, 2, 1, 3).reshape(b, t, d)
        x = x + F.linear(joined, self.proj)
        return x + F.linear(F.silu(F.linear(normed(x, self.scales[1], self.shifts[1]), self.up)), self.down)


class GPT(nn.Cell):  # type: ignore[misc]
    def __init__(self, words: int, d: int, heads: int, layers: int, t: int) -> None:
        super().__init__()
        mask = Tensor(np.triu(np.full((t, t), -1e9, np.float32), 1))
        self.tokens, self.places = weight(words, d), weight(t, d)
        self.blocks = nn.CellList([Block(d, heads, mask) for _ in range(layers)])

    def construct(self, tokens: Any) -> Any:
        x = ops.gather(self.tokens, tokens, 0) + self.places
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.tokens)


def training(words: int, d: int, heads: int, layers: int, t: int, batch: int) -> Callable[[], Any]:
    """One training step of a model of that size, which gives its loss."""
    model = GPT(words, d, heads, layers, t)
    model.update_parameters_name()
    tokens = Tensor(_random.integers(0, words, (batch, t)).astype(np.int32))

    def loss(tokens: Any) -> Any:
        return ops.cross_entropy(model(tokens).reshape(-1, words), tokens.reshape(-1))

    return _step(loss, model, tokens)


def _convolutions() -> Callable[[], Any]:
    class CNN(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = weight(8, 3, 3, 3), weight(16, 8, 3, 3), weight(10, 16 * 16)

        def construct(self, x: Any) -> Any:
            x = ops.max_pool2d(ops.relu(ops.conv2d(x, self.first, None, 1, "same")), 2, 2)
            x = ops.max_pool2d(ops.relu(ops.conv2d(x, self.second, None, 1, "pad", 1)), 2, 2)
            return ops.dense(ops.flatten(x), self.last)

    model = CNN()
    model.update_parameters_name()
    images = Tensor(_random.standard_normal((4, 3, 16, 16)).astype(np.float32))
    labels = Tensor(_random.integers(0, 10, 4).astype(np.int32))
    return _step(lambda images: ops.cross_entropy(model(images), labels), model, images)


def _layers() -> Callable[[], Any]:
    first, second, scale = weight(32, 16), weight(10, 32), weight(16)

    class MLP(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.scale = first, second, scale

        def construct(self, x: Any) -> Any:
            return F.linear(mint.tanh(F.linear(x * (1 + self.scale), self.first)), self.second)

    model = MLP()
    model.update_parameters_name()
    rows = Tensor(_random.standard_normal((8, 16)).astype(np.float32))
    labels = Tensor(_random.integers(0, 10, 8).astype(np.int32))
    return _step(lambda rows: ops.cross_entropy(model(rows), labels), model, rows)


def _step(loss: Callable[[Any], Any], model: Any, given: Any) -> Callable[[], Any]:
    optimizer = nn.SGD(model.trainable_params(), 1e-3)
    gradients = mindspore.value_and_grad(loss, None, optimizer.parameters)

    def step() -> Any:
        found, grads = gradients(given)
        optimizer(grads)
        return found.asnumpy()

    return step


OTHERS: Mapping[str, Callable[[], Callable[[], Any]]] = {"MLP": _layers, "CNN": _convolutions}
