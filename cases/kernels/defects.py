"""What a fault may do to a finished output, whatever the kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensor = torch.Tensor


def zeros(x: Tensor) -> Tensor:
    return x * 0


def scaled(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda x: (x.float() * factor).to(x.dtype)


def _filled(x: Tensor, count: int, value: float) -> Tensor:
    left = torch.arange(x.numel(), device=x.device).view(x.shape) < x.numel() - count
    return torch.where(left, x, torch.full_like(x, value))


def tail(count: int, value: float) -> Callable[[Tensor], Tensor]:
    """The last elements as the memory happened to be."""
    return lambda x: _filled(x, min(count, x.numel()), value)


def one(index: int, factor: float) -> Callable[[Tensor], Tensor]:
    """One element off by a factor."""

    def change(x: Tensor) -> Tensor:
        here = torch.arange(x.numel(), device=x.device).view(x.shape) == index % x.numel()
        return torch.where(here, (x.float() * factor).to(x.dtype), x)

    return change


def last_row_zero(x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[-2], device=x.device)[:, None] < x.shape[-2] - 1
    return torch.where(rows, x, torch.zeros_like(x))


def last_column_zero(x: Tensor) -> Tensor:
    columns = torch.arange(x.shape[-1], device=x.device) < x.shape[-1] - 1
    return torch.where(columns, x, torch.zeros_like(x))


def swapped_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([second, first], -1)


def swapped_rows(x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[-2], device=x.device)
    rows[0], rows[1] = 1, 0
    return x.index_select(-2, rows)


def saturated(limit: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x.clamp(-limit, limit)
