"""Two implementations of a call each, that differ by something with a name, and records of what they implement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.writing import entries, write_dump


def rms_norm(x: Tensor, shape: list[int], weight: Tensor, eps: float) -> Tensor:
    """The formula; in float64 the reference of the two below."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def cast_last(x: Tensor, shape: list[int], weight: Tensor, eps: float) -> Tensor:
    """One rounding, at its end."""
    return rms_norm(x.float(), shape, weight.float(), eps).to(x.dtype)


def cast_before_weight(x: Tensor, shape: list[int], weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def wrong_eps(x: Tensor, shape: list[int], weight: Tensor, eps: float) -> Tensor:
    return cast_before_weight(x, shape, weight, 1e-2)


def no_kernel(x: Tensor, shape: list[int], weight: Tensor, eps: float) -> Tensor:
    raise NotImplementedError("no kernel for this dtype")


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """In separate calls, each of which rounds."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ value


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """In two calls, each of which rounds."""
    return F.silu(gate) * up


def fused_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return swiglu(gate.float(), up.float()).to(gate.dtype)


def added_in_sequence(x: Tensor, dim: int) -> Tensor:
    """A sum of rows, one term after another."""
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for column in x.unbind(dim):
        total = total + column
    return total


def with_operands(rounding: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A product of rounded matrices."""
    return lambda a, b: torch.matmul(rounding(a), rounding(b))


def nudged(function: Callable[..., Tensor], share: float, seed: int) -> Callable[..., Tensor]:
    """The function, but of its result that share of the elements one ulp off to either side."""

    def call(*args: Any) -> Tensor:
        result = function(*args)
        generator = torch.Generator().manual_seed(seed)
        chosen, up = (torch.rand(result.shape, generator=generator) < limit for limit in (share, 0.5))
        beyond = torch.where(up, torch.inf, -torch.inf).to(result.dtype)
        moved = torch.where(chosen, torch.nextafter(result.detach(), beyond), result.detach())
        return result + (moved - result.detach())

    return call


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def write_records(folder: Path) -> Path:
    """Each API in bfloat16 (call 0) and in float32 (call 1), with its backward."""
    found: dict[str, Any] = {}
    for number, dtype in enumerate((torch.bfloat16, torch.float32)):
        x, up, weight = (normal(32, 128, dtype=dtype), normal(32, 128, dtype=dtype, seed=1), normal(128, dtype=dtype))
        heads = [normal(1, 4, 48, 64, dtype=dtype, seed=each) for each in range(3)]
        sdpa = "Functional.scaled_dot_product_attention"
        found |= entries(f"Functional.rms_norm.{number}", F.rms_norm, x, [128], weight, 1e-6, backward=True)
        found |= entries(f"{sdpa}.{number}", F.scaled_dot_product_attention, *heads, backward=True)
        found |= entries(f"Engine.swiglu.{number}", swiglu, x, up, backward=True)
        found |= entries(f"Functional.relu.{number}", F.relu, x, backward=True)
    folder.mkdir(exist_ok=True)
    return write_dump(folder, found)
