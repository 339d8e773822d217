"""PyTorch: kernels whose 16-bit versions are known to round inside, written as the steps between which they do.

Most kernels compute 16-bit tensors in float32 and round once; these do not, on torch's own CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_probe.frameworks.torch.cpu16.formulas import constant
from pytest_probe.frameworks.torch.cpu16.loops import beyond_vectors
from pytest_probe.frameworks.torch.cpu16.sequential import fuses, looped

ATEN = torch.ops.aten


def rsqrt(x: torch.Tensor) -> torch.Tensor:
    """The square root is rounded before it is inverted, where no vector holds it."""
    root: torch.Tensor = ATEN.sqrt.default(x)
    return torch.where(beyond_vectors(looped(), x), root.reciprocal(), torch.rsqrt(x))


def add(x: torch.Tensor, y: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    """The factor is rounded, and what it scales where no vector holds it, or vectors do not fuse."""
    return NotImplemented if alpha == 1 else _scaled_sum(torch.add, x, y, alpha)


def sub(x: torch.Tensor, y: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    return NotImplemented if alpha == 1 else _scaled_sum(torch.sub, x, y, alpha)


def _scaled_sum(join: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    factor = constant(alpha)
    if not fuses():
        return join(x, y * factor)
    return torch.where(beyond_vectors(looped(), x, y), join(x, y * factor), join(x, y, alpha=float(factor)))


def rsub(x: torch.Tensor, y: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    return sub(y, x, alpha)


def addcmul(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return x + y * z * value


def addcdiv(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return x + y / z * value


def lerp(x: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    return x + (end - x) * weight


def in_place(composed: Callable[..., Any]) -> Callable[..., Any]:
    """The same steps for the version that writes to its first argument."""

    def function(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = composed(x, *args, **kwargs)
        return result if result is NotImplemented else x.copy_(result)

    return function


COMPOSED: Mapping[Any, Callable[..., Any]] = {
    ATEN.rsqrt.default: rsqrt,
    ATEN.add.Tensor: add,
    ATEN.sub.Tensor: sub,
    ATEN.rsub.Tensor: rsub,
    ATEN.addcmul.default: addcmul,
    ATEN.addcdiv.default: addcdiv,
    ATEN.lerp.Scalar: lerp,
    ATEN.lerp.Tensor: lerp,
}
