"""PyTorch: a border between two kernels, where runs that are asked to round values and their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pytest_probe.frameworks.widened import border_dtype


def border(tensor: torch.Tensor) -> torch.Tensor:
    """See Framework.border."""
    dtype = border_dtype()
    if not dtype or not tensor.is_floating_point():
        return tensor
    passed: torch.Tensor = _Border.apply(tensor, getattr(torch, dtype))  # type: ignore[no-untyped-call]
    return passed


class _Border(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        context.dtype = dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _rounded(gradient, context.dtype), None


def _rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # In a reference's run casts give float64: this one narrows.
    with _disable_current_modes():
        return tensor.to(dtype).to(tensor.dtype)
