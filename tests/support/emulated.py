"""Devices that compute float32 in a mode of their own, emulated by patched torch functions; float64 stays right."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

Function = Callable[..., Any]
Rounding = Callable[[torch.Tensor], torch.Tensor]


def to_bits(bits: int, how: str = "even") -> Rounding:
    """Rounds float32 to that many significand bits: ties to even, away from zero, or cut."""
    drop = 24 - bits
    half = 1 << (drop - 1)

    def rounding(tensor: torch.Tensor) -> torch.Tensor:
        pattern = tensor.detach().contiguous().view(torch.int32)
        added: Any = {"even": half - 1 + ((pattern >> drop) & 1), "away": half, "zero": 0}[how]
        return ((pattern + added) & -(1 << drop)).view(torch.float32)

    return rounding


def product(rounding: Rounding) -> Function:
    """A matrix product of rounded operands, forward and backward."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a, b)
            return matmul(rounding(a), rounding(b))

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a, b = ctx.saved_tensors
            of_b = matmul(rounding(a.transpose(-2, -1)), rounding(gradient))
            return matmul(rounding(gradient), rounding(b.transpose(-2, -1))), of_b

    return Product.apply


def convolution(rounding: Rounding) -> Function:
    """A 2d convolution of rounded operands, forward and backward; the bias and its gradient as they are."""

    class Convolution(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
            ctx.save_for_backward(x, weight)
            ctx.how = (stride, padding)
            return convolve(rounding(x), rounding(weight), None, stride, padding)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
            x, weight = ctx.saved_tensors
            g = rounding(gradient)
            of_x = conv2d_input(x.shape, rounding(weight), g, *ctx.how)
            return of_x, conv2d_weight(rounding(x), weight.shape, g, *ctx.how), None, None

    return Convolution.apply


matmul, convolve = torch.matmul, F.conv2d  # before anything is patched


def patches(rounding: Rounding) -> dict[str, tuple[Any, str, Function]]:
    """What the device calls in place of torch's functions, for float32: by name, its owner, attribute and function."""
    multiply, filtered = product(rounding), convolution(rounding)

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return multiply(x, weight.t()) + bias

    def conv2d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
        return filtered(x, weight, stride, padding) + bias.view(-1, 1, 1)

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = multiply(query, key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
        return multiply(torch.softmax(scores, -1), value)

    return {
        "linear": (F, "linear", linear),
        "matmul": (torch, "matmul", multiply),
        "conv2d": (F, "conv2d", conv2d),
        "attention": (F, "scaled_dot_product_attention", attention),
    }


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


# Name in the dump, owner, attribute, arguments.
CALLS: dict[str, tuple[str, Any, str, tuple[Any, ...]]] = {
    "linear": ("Functional.linear", F, "linear", (normal(16, 64), normal(32, 64), normal(32))),
    "matmul": ("Torch.matmul", torch, "matmul", (normal(24, 256), normal(256, 16))),
    "conv2d": ("Functional.conv2d", F, "conv2d", (normal(2, 8, 10, 10), normal(16, 8, 3, 3), normal(16), 1, 1)),
    "attention": (
        "Functional.scaled_dot_product_attention", F, "scaled_dot_product_attention",
        (normal(2, 2, 16, 8), normal(2, 2, 16, 8), normal(2, 2, 16, 8)),
    ),
}  # fmt: skip


def narrow_only(right: Function, wrong: Function) -> Function:
    """The wrong function for tensors narrower than float64, the right one otherwise."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return (right if args[0].dtype is torch.float64 else wrong)(*args, **kwargs)

    return function
