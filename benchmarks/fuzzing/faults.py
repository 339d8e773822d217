"""Faults that recorded ranges miss, as kernels in a function's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from msgspec import Struct


class Fault(Struct, frozen=True):
    """A kernel with a fault, in the place of an API's. smallest is the number of elements of the largest tensor of the
    smallest call that fails; None where it depends on the numbers."""

    name: str
    api: str
    kernel: Callable[..., Any]
    dtype: str = "float32"
    smallest: int | None = 1


def softmax_without_max(input: torch.Tensor, dim: int) -> torch.Tensor:
    powers = input.exp()
    return powers / powers.sum(dim, keepdim=True)


def log_of_sum(input: torch.Tensor) -> torch.Tensor:
    return torch.log(1 + input)


def relu_without_nan(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return torch.where(input > 0, input, torch.zeros_like(input))


def tail_unwritten(input: torch.Tensor) -> torch.Tensor:
    flat = input.exp().reshape(-1)
    written = torch.arange(flat.numel(), device=flat.device) < flat.numel() // 16 * 16
    return torch.where(written, flat, torch.zeros_like(flat)).reshape(input.shape)


def reads_in_order(input: torch.Tensor) -> torch.Tensor:
    if input.is_contiguous() or 0 in input.stride():
        return input.tanh()
    return torch.as_strided(input, input.shape, torch.empty(input.shape).stride(), input.storage_offset()).tanh()


def negative_dim(input: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.log_softmax(input, dim if dim >= 0 else 0)


def empty_sum(input: torch.Tensor, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
    total = torch.sum(input, dim, keepdim)
    return total if input.numel() else total + 1


def narrow_accumulator(input: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    total: torch.Tensor | None = None
    for part, row in zip(input.split(8, -1), weight.split(8, -1), strict=True):
        first = bias.float() if bias is not None and total is None else None
        product = torch.nn.functional.linear(part.float(), row.float(), first).to(input.dtype)
        total = product if total is None else total + product
    assert total is not None
    return total


def short_offsets(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    width = weight.shape[1]
    offsets = (input * width).unsqueeze(-1) + torch.arange(width, device=input.device)
    return weight.reshape(-1)[offsets.to(torch.int16).long() % max(weight.numel(), 1)]


def flushes(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    product = input * other
    return torch.where(product.abs() < torch.finfo(product.dtype).tiny, torch.zeros_like(product), product)


def halves_away(input: torch.Tensor) -> torch.Tensor:
    return torch.where(input.abs() < 2**22, torch.sign(input) * torch.floor(input.abs() + 0.5), input)


FAULTS = (
    Fault("softmax without the max", "Functional.softmax", softmax_without_max),
    Fault("log1p as log(1 + x)", "Torch.log1p", log_of_sum),
    Fault("relu eats NaN", "Functional.relu", relu_without_nan),
    Fault("tail of 16 unwritten", "Torch.exp", tail_unwritten),
    Fault("non-contiguous input", "Torch.tanh", reads_in_order, smallest=2),
    Fault("negative dim", "Torch.log_softmax", negative_dim, smallest=2),
    Fault("sum of nothing", "Torch.sum", empty_sum, smallest=0),
    Fault("float16 accumulator", "Functional.linear", narrow_accumulator, "float16", None),
    Fault("offsets of int16", "Functional.embedding", short_offsets, smallest=32769),
    Fault("flushed subnormals", "Torch.mul", flushes),
    Fault("halves rounded away", "Torch.round", halves_away),
)
