"""Calls of torch's with another gradient than theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class _Changed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, None]:
        return ctx.change(gradient), None


def with_gradient(x: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """Itself, with what a change makes of its gradient."""
    found: torch.Tensor = _Changed.apply(x, change)
    return found


def with_scaled_gradient(x: torch.Tensor, factor: float) -> torch.Tensor:
    return with_gradient(x, lambda gradient: gradient * factor)
