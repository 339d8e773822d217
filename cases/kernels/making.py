"""Tensors for the kernels, from a generator."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def normal(g: torch.Generator, dtype: torch.dtype, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
    return (torch.randn(shape, generator=g, dtype=torch.float64) * scale + mean).to(dtype)


def uniform(g: torch.Generator, dtype: torch.dtype, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return (torch.rand(shape, generator=g, dtype=torch.float64) * (high - low) + low).to(dtype)


def integers(g: torch.Generator, high: int, *shape: int, low: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=g)


def state(dtype: torch.dtype) -> torch.dtype:
    """What optimisers and tables keep beside 16-bit tensors: float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32
