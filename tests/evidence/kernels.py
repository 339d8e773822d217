"""Healthy 16-bit kernels on which suites with flat tolerances keep failing, and what a faulty one would give.

All outputs but the softmax's reach about 30, where one bfloat16 step is 0.125.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from msgspec import Struct

Tensor = torch.Tensor
BF16, F16 = torch.bfloat16, torch.float16


class Kernel(Struct, frozen=True):
    """A kernel, its reference, and its arguments for a seed."""

    function: Callable[..., Tensor]
    reference: Callable[..., Tensor]
    inputs: Callable[[torch.Generator], list[Any]]


def normal(generator: torch.Generator, *shape: int, scale: float = 1.0, dtype: torch.dtype = BF16) -> Tensor:
    return (torch.randn(shape, generator=generator) * scale).to(dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Mean and variance of blocks of 64, combined as parallel kernels do; one rounding at the end."""
    wide = x.float()
    blocks = wide.unflatten(-1, (-1, 64))
    means = blocks.mean(-1)
    mean = means.mean(-1, keepdim=True)
    variance = blocks.var(-1, correction=0).mean(-1, keepdim=True) + (means - mean).square().mean(-1, keepdim=True)
    return ((wide - mean) * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(x.dtype)


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def layer_norm_inputs(generator: torch.Generator) -> list[Any]:
    return [
        normal(generator, 16, 256),
        normal(generator, 256, scale=4.0),
        normal(generator, 256, scale=2.0),
        1e-5,
    ]


def rotated_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def rotary_reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + rotated_half(x) * sin


def rotary_fused(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """In float32, rounded once."""
    return rotary_reference(x.float(), cos.float(), sin.float()).to(x.dtype)


def rotary_inputs(generator: torch.Generator) -> list[Any]:
    angles = torch.arange(32)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
    angles = torch.cat([angles, angles], -1)
    return [normal(generator, 4, 32, 64, scale=8.0), angles.cos().to(BF16), angles.sin().to(BF16)]


def split_k(a: Tensor, b: Tensor) -> Tensor:
    """Eight partial products in float32, summed pairwise."""
    parts = [left.float() @ right.float() for left, right in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)]
    while len(parts) > 1:
        parts = [first + second for first, second in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0].to(a.dtype)


def cancelling_inputs(generator: torch.Generator) -> list[Any]:
    """K = 256, of which one half takes away most of the other."""
    a, b = normal(generator, 32, 128, scale=4.0), normal(generator, 128, 48)
    rest, others = normal(generator, 32, 128, scale=0.02), normal(generator, 128, 48, scale=0.02)
    return [torch.cat([a, -a + rest], 1), torch.cat([b, b + others], 0)]


def newton_sqrt(x: Tensor) -> Tensor:
    """Three Newton steps towards 1 / sqrt(x) from the well-known first guess."""
    wide = x.float()
    guess = (0x5F3759DF - (wide.detach().view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(3):
        guess = guess * (1.5 - 0.5 * wide * guess * guess)
    return (wide * guess).to(x.dtype)


def newton_inputs(generator: torch.Generator) -> list[Any]:
    return [(torch.rand(32, 64, generator=generator) * 900 + 1e-3).to(F16)]


def online_softmax(x: Tensor) -> Tensor:
    """Block by block with a running maximum, in powers of two."""
    wide = x.float() * 1.4426950408889634
    largest = wide.new_full((*x.shape[:-1], 1), -torch.inf)
    total = torch.zeros_like(largest)
    for block in wide.split(64, -1):
        higher = torch.maximum(largest, block.amax(-1, keepdim=True))
        total = total * torch.exp2(largest - higher) + torch.exp2(block - higher).sum(-1, keepdim=True)
        largest = higher
    return (torch.exp2(wide - largest) / total).to(x.dtype)


def softmax_reference(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def softmax_inputs(generator: torch.Generator) -> list[Any]:
    return [normal(generator, 32, 256, scale=3.0)]


def residual_reference(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return x + bias + residual


def residual_fused(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return residual_reference(x.float(), bias.float(), residual.float()).to(x.dtype)


def residual_inputs(generator: torch.Generator) -> list[Any]:
    return [normal(generator, 32, 128, scale=8.0), normal(generator, 128), normal(generator, 32, 128, scale=4.0)]


KERNELS = {
    "layer norm": Kernel(layer_norm, layer_norm_reference, layer_norm_inputs),
    "rotary embedding, fused": Kernel(rotary_fused, rotary_reference, rotary_inputs),
    "rotary embedding, rounded between its steps": Kernel(rotary_reference, rotary_reference, rotary_inputs),
    "GEMM with cancellation, split-K": Kernel(split_k, torch.matmul, cancelling_inputs),
    "float16 sqrt by Newton steps": Kernel(newton_sqrt, torch.sqrt, newton_inputs),
    "online softmax": Kernel(online_softmax, softmax_reference, softmax_inputs),
    "residual add, one rounding fewer": Kernel(residual_fused, residual_reference, residual_inputs),
    "residual add, rounded between its steps": Kernel(residual_reference, residual_reference, residual_inputs),
}


def one_element(output: Tensor, share: float) -> Tensor:
    """One element off by a share of the output's RMS, or by 5 % of itself where that is more."""
    wide = output.detach().float()
    error = torch.zeros_like(wide).view(-1)
    place = wide.numel() // 3
    error[place] = max(0.05 * float(wide.view(-1)[place].abs()), share * float(wide.square().mean().sqrt()))
    return output + error.view(wide.shape).to(output.dtype)


def swapped_rows(output: Tensor) -> Tensor:
    rows = torch.arange(output.shape[-2])
    rows[3], rows[4] = 4, 3
    return output[..., rows, :]


def one_percent_scale(output: Tensor) -> Tensor:
    return (output.float() * 1.01).to(output.dtype)


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one wrong element": lambda output: one_element(output, 0.25),
    "a swapped row": swapped_rows,
    "a 1 % scale": one_percent_scale,
}
# Found wherever it is larger than what rounding between the steps of the reference explains: in all but a few.
SUBTLE: dict[str, Callable[[Tensor], Tensor]] = {"one element off by 5 %": lambda output: one_element(output, 0.05)}


def faulty(kernel: Kernel, fault: str) -> Kernel:
    """The kernel with a fault in its output."""
    change = {**FAULTS, **SUBTLE}[fault]
    return Kernel(lambda *args: change(kernel.function(*args)), kernel.reference, kernel.inputs)
