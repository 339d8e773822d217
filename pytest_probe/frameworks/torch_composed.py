"""PyTorch: kernels whose 16-bit versions are known to round inside, written as the steps between which they do.

Most kernels compute 16-bit tensors in float32 and round once; these do not, on torch's own CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

ATEN = torch.ops.aten
CHUNKS = 256


def rsqrt(x: torch.Tensor) -> torch.Tensor:
    """The square root is rounded before it is inverted."""
    return ATEN.reciprocal.default(ATEN.sqrt.default(x))


def layer_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """Gradients of weight and bias are accumulated row by row in the tensors' dtype."""
    exact = ATEN.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, wanted)
    normal = (x - mean) * rstd
    rows = [accumulated(grad * normal, shape), accumulated(grad, shape)]
    return (exact[0], *(row if asked else None for row, asked in zip(rows, wanted[1:], strict=True)))


def accumulated(values: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The sum over all but the trailing `shape`, as a chain of at most 256 additions."""
    total, *rest = (chunk.sum(0) for chunk in values.reshape(-1, *shape).chunk(CHUNKS))
    for chunk in rest:
        total = total + chunk
    return total


COMPOSED: Mapping[Any, Callable[..., Any]] = {
    ATEN.rsqrt.default: rsqrt,
    ATEN.native_layer_norm_backward.default: layer_norm_backward,
}
