"""Matrix products: split-K, epilogues, tensor cores, int8 weights, groups: tasks and healthy kernels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from cases.kernels.entry import NARROW, Task
from cases.kernels.making import integers, normal, uniform
from cases.kernels.rounding import (
    once,
    tiles,
    up,
)

Tensor = torch.Tensor


def matmul_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 24, 200), normal(g, dtype, 200, 32)]


def split_k(a: Tensor, b: Tensor, size: int = 25) -> Tensor:
    """Partial products, added up in order."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for left, right in zip(tiles(a, size, 1), tiles(b, size, 0), strict=True):
        total = total + left @ right
    return total


MATMUL = Task("matmul", "gemm", once(torch.matmul), torch.matmul, matmul_inputs, "Torch.matmul", backward=True)

WIDE = Task("16 bit to float32", "gemm", lambda a, b: split_k(up(a), up(b)), torch.matmul, matmul_inputs, dtypes=NARROW)


def linear_inputs(dtype: torch.dtype, g: torch.Generator) -> list[Any]:
    return [normal(g, dtype, 24, 64), normal(g, dtype, 40, 64, scale=0.2), normal(g, dtype, 40)]


LINEAR = Task("linear", "gemm", once(F.linear), F.linear, linear_inputs, "Functional.linear", backward=True)


def dequantised(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    return x @ (q.to(scale.dtype) * scale[:, None]).t()


INT8 = Task(
    "int8 weights",
    "gemm",
    once(lambda x, q, s: (x @ q.to(x.dtype).t()) * s),
    dequantised,
    lambda dtype, g: [
        normal(g, dtype, 24, 64),
        integers(g, 128, 40, 64, low=-128).to(torch.int8),
        uniform(g, dtype, 40, low=0.001, high=0.02),
    ],
)


def grouped(x: Tensor, w: Tensor, ends: Any) -> Tensor:
    """Rows up to each end by that expert's weight."""
    starts = (0, *ends[:-1])
    return torch.cat([x[s:e] @ w[i] for i, (s, e) in enumerate(zip(starts, ends, strict=True))])


GROUPED = Task(
    "grouped matmul",
    "gemm",
    once(grouped),
    grouped,
    lambda dtype, g: [normal(g, dtype, 48, 32), normal(g, dtype, 4, 32, 24), (10, 10, 31, 48)],
    backward=True,
)
