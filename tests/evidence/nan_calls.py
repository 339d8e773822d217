"""Calls in which zero meets NaN or an infinity: what IEEE arithmetic gives by the formula, in NumPy, and the same calls
in torch and in Paddle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Struct
from numpy.lib.stride_tricks import sliding_window_view

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Function: TypeAlias = Callable[..., Any]
INF, NAN = np.inf, np.nan
KEEP = 0.5


class NanCall(Struct, frozen=True):
    """formula takes and gives float64 arrays, each product made and added; torch and paddle take tensors, paddle the
    module first. None: the framework has no such call."""

    inputs: Callable[[], Sequence[Array]]
    formula: Callable[..., Array]
    torch: Function
    paddle: Function | None = None


def normal(*shape: int, odd: float | None = None, seed: int = 0) -> Array:
    """Standard normal numbers; the first is odd."""
    found = np.random.default_rng(seed).standard_normal(shape)
    if odd is not None:
        found.reshape(-1)[0] = odd
    return found


def with_zeros(*shape: int) -> Array:
    """Zeros in every second column."""
    found = normal(*shape, seed=1)
    found[..., ::2] = 0
    return found


def product(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):
        found: Array = (a[..., :, :, None] * b[..., None, :, :]).sum(-2)
    return found


def windows(x: Array, size: int, pad: float = 0.0) -> Array:
    """[images, channels, rows, columns, size, size], padded by 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=pad)
    return sliding_window_view(padded, (size, size), (2, 3))


def conv2d(x: Array, weight: Array) -> Array:
    with np.errstate(invalid="ignore"):
        found: Array = (windows(x, 3)[:, None] * weight[None, :, :, None, None]).sum((2, 5, 6))
    return found


def conv2d_input_gradient(incoming: Array, weight: Array) -> Array:
    return conv2d(incoming, np.flip(weight, (2, 3)).swapaxes(0, 1))


def conv2d_weight_gradient(incoming: Array, x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        found: Array = (windows(x, 3)[:, None] * incoming[:, :, None, :, :, None, None]).sum((0, 3, 4))
    return found


def softmax(x: Array, mask: Array) -> Array:
    with np.errstate(invalid="ignore"):
        scores = x + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found: Array = weights / weights.sum(-1, keepdims=True)
    return found


def times(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return a * b


def gradient(function: Function) -> Function:
    """torch: the gradient of function(x, *others) by x, from (incoming, x, *others)."""

    def found(incoming: torch.Tensor, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            wanted = x.detach().requires_grad_()
            (given,) = torch.autograd.grad(function(wanted, *others), wanted, incoming)
        return given

    return found


def paddle_gradient(function: Function) -> Function:
    """Paddle: the same."""

    def found(paddle: Any, incoming: Any, x: Any, *others: Any) -> Any:
        wanted = x.detach()
        wanted.stop_gradient = False
        with paddle.enable_grad():
            (given,) = paddle.grad(function(paddle, wanted, *others), wanted, incoming)
        return given

    return found


def maximum_gradient(incoming: Array, x: Array) -> Array:
    """Of pools of 2 x 2: each incoming gradient goes to the place of the largest number; nothing is multiplied."""
    found = np.zeros_like(x)
    for place in np.ndindex(incoming.shape):
        image, channel, row, column = place
        window = x[image, channel, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        above, right = np.unravel_index(window.argmax(), (2, 2))
        found[image, channel, 2 * row + above, 2 * column + right] = incoming[place]
    return found


def mask_of(*shape: int) -> Array:
    return (with_zeros(*shape) != 0).astype(np.float64)


def largest_of(x: Array) -> Array:
    found: Array = windows(x, 3, -INF).max((-2, -1))
    return found


CALLS: dict[str, NanCall] = {
    "linear, NaN in the weight": NanCall(
        lambda: [with_zeros(4, 6), normal(3, 6, odd=NAN)],
        lambda x, w: product(x, w.T),
        F.linear,
        lambda paddle, x, w: paddle.nn.functional.linear(x, w.T),
    ),
    "linear's gradient of the weight, NaN in the incoming one": NanCall(
        lambda: [normal(4, 3, odd=NAN), normal(3, 6), with_zeros(4, 6)],
        lambda g, w, x: product(g.T, x),
        gradient(lambda w, x: F.linear(x, w)),
        paddle_gradient(lambda paddle, w, x: paddle.nn.functional.linear(x, w.T)),
    ),
    "matmul, inf": NanCall(
        lambda: [with_zeros(4, 6), normal(6, 3, odd=INF)], product, torch.matmul, lambda paddle, a, b: a @ b
    ),
    "addmm with beta = 0, NaN in what is added": NanCall(
        # As torch documents it: "If beta is 0, then the content of input will be ignored".
        lambda: [normal(4, 3, odd=NAN), with_zeros(4, 6), normal(6, 3)],
        lambda c, a, b: product(a, b),
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        lambda paddle, c, a, b: paddle.addmm(c, a, b, beta=0.0),
    ),
    "addmm with alpha = 0, NaN in the product": NanCall(
        lambda: [normal(4, 3), normal(4, 6, odd=NAN), normal(6, 3)],
        lambda c, a, b: c + times(product(a, b), np.zeros(())),
        lambda c, a, b: torch.addmm(c, a, b, alpha=0),
        lambda paddle, c, a, b: paddle.addmm(c, a, b, alpha=0.0),
    ),
    "conv2d, NaN in the weight": NanCall(
        lambda: [normal(2, 4, 7, 7), normal(8, 4, 3, 3, odd=NAN)],
        conv2d,
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda paddle, x, w: paddle.nn.functional.conv2d(x, w, padding=1),
    ),
    "conv2d, inf in the weight": NanCall(
        lambda: [normal(2, 4, 7, 7), normal(8, 4, 3, 3, odd=INF)],
        conv2d,
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda paddle, x, w: paddle.nn.functional.conv2d(x, w, padding=1),
    ),
    "conv2d, NaN in the input": NanCall(
        lambda: [normal(2, 4, 7, 7, odd=NAN), with_zeros(8, 4, 3, 3)],
        conv2d,
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda paddle, x, w: paddle.nn.functional.conv2d(x, w, padding=1),
    ),
    "conv2d's gradient of the input, NaN in the weight": NanCall(
        lambda: [normal(2, 8, 7, 7), normal(2, 4, 7, 7), normal(8, 4, 3, 3, odd=NAN)],
        lambda g, x, w: conv2d_input_gradient(g, w),
        gradient(lambda x, w: F.conv2d(x, w, padding=1)),
        paddle_gradient(lambda paddle, x, w: paddle.nn.functional.conv2d(x, w, padding=1)),
    ),
    "conv2d's gradient of the weight, NaN in the incoming one": NanCall(
        lambda: [normal(2, 8, 7, 7, odd=NAN), normal(8, 4, 3, 3), normal(2, 4, 7, 7)],
        lambda g, w, x: conv2d_weight_gradient(g, x),
        gradient(lambda w, x: F.conv2d(x, w, padding=1)),
        paddle_gradient(lambda paddle, w, x: paddle.nn.functional.conv2d(x, w, padding=1)),
    ),
    "largest pool, NaN": NanCall(
        lambda: [normal(2, 4, 7, 7, odd=NAN)],
        largest_of,
        lambda x: F.max_pool2d(x, 3, 1, 1),
        lambda paddle, x: paddle.nn.functional.max_pool2d(x, 3, 1, 1),
    ),
    "largest pool's gradient, NaN in the incoming one": NanCall(
        lambda: [normal(2, 4, 3, 3, odd=NAN), normal(2, 4, 6, 6)],
        maximum_gradient,
        gradient(lambda x: F.max_pool2d(x, 2)),
        paddle_gradient(lambda paddle, x: paddle.nn.functional.max_pool2d(x, 2)),
    ),
    "dropout's gradient, NaN in the incoming one": NanCall(
        lambda: [normal(4, 6, odd=NAN), mask_of(4, 6)],
        lambda g, mask: times(times(g, mask), np.full((), 1 / KEEP)),
        lambda g, mask: torch.ops.aten.native_dropout_backward(g, mask != 0, 1 / KEEP),
    ),
    "a product with a mask, NaN": NanCall(
        lambda: [normal(4, 6, odd=NAN), mask_of(4, 6)], times, torch.mul, lambda paddle, x, mask: x * mask
    ),
    "where, NaN in what is not chosen": NanCall(
        lambda: [normal(4, 6, odd=NAN), mask_of(4, 6)],
        lambda x, mask: np.where(mask != 0, x, 0),
        lambda x, mask: torch.where(mask != 0, x, 0.0),
        lambda paddle, x, mask: paddle.where(mask != 0, x, paddle.zeros_like(x)),
    ),
    "where's gradient, NaN in the incoming one": NanCall(
        lambda: [normal(4, 6, odd=NAN), normal(4, 6), mask_of(4, 6)],
        lambda g, x, mask: np.where(mask != 0, g, 0),
        gradient(lambda x, mask: torch.where(mask != 0, x, 0.0)),
        paddle_gradient(lambda paddle, x, mask: paddle.where(mask != 0, x, paddle.zeros_like(x))),
    ),
    "relu's gradient, NaN in the incoming one": NanCall(
        lambda: [normal(4, 6, odd=NAN), -np.abs(normal(4, 6))],
        lambda g, x: np.where(x > 0, g, 0),
        gradient(F.relu),
        paddle_gradient(lambda paddle, x: paddle.nn.functional.relu(x)),
    ),
    "softmax of scores and a mask, NaN where the mask is -inf": NanCall(
        lambda: [normal(4, 6, odd=NAN), np.where(mask_of(4, 6) != 0, 0, -INF)],
        softmax,
        lambda x, mask: F.softmax(x + mask, -1),
        lambda paddle, x, mask: paddle.nn.functional.softmax(x + mask, -1),
    ),
}
