"""Products of matrices whose numbers share scales (FP8, MXFP8, MXFP4, NVFP4): each number times its scale, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from pytest_probe.numerics.dtypes import PACKED
from pytest_probe.numerics.scaled import Order, Recipe, places, recipe_named
from pytest_probe.references.arguments import at_least_float32, check_shapes

_FLOAT4: torch.dtype | None = getattr(torch, PACKED, None)  # since torch 2.8
_NUMBERS = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def numbers(matrix: torch.Tensor, dtype: torch.dtype = torch.float64, axis: int = -1) -> torch.Tensor:
    """A matrix's numbers: of float4_e2m1fn_x2 in `dtype`, twice as many along the axis in which two share a byte; any
    other matrix itself."""
    if matrix.dtype is not _FLOAT4:
        return matrix
    data = matrix.detach().view(torch.uint8).movedim(axis, -1)
    codes = torch.stack((data & 0xF, data >> 4), -1).flatten(-2)
    return torch.from_numpy(_NUMBERS).to(data.device, dtype)[codes.long()].movedim(-1, axis)


def scaled(
    matrix: torch.Tensor, scales: Sequence[torch.Tensor], recipes: Sequence[Recipe], order: Order
) -> torch.Tensor:
    """Each number of a matrix, shape (rows, columns), times its scales. order is that of the first scales."""
    shape = (matrix.shape[0], matrix.shape[1])
    for place, (stored, recipe) in enumerate(zip(scales, recipes, strict=True)):
        where = torch.from_numpy(places(recipe, shape, "grid" if place else order)).to(stored.device)
        grid = stored.reshape(-1)[where]
        for axis, size in ((0, recipe.rows), (1, recipe.columns)):
            if grid.shape[axis] > 1:
                grid = grid.repeat_interleave(size, axis)[tuple([slice(None)] * axis + [slice(shape[axis])])]
        matrix = matrix * grid
    return matrix


def scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scales_a: Sequence[torch.Tensor],
    scales_b: Sequence[torch.Tensor],
    recipes_a: Sequence[Any],
    recipes_b: Sequence[Any],
    orders: tuple[Order, Order] = ("grid", "grid"),
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """(a times its scales) @ (b times its scales) + bias, in float32 at least, which the result has.

    a: (M, K); b: (K, N), whose scales count its columns as rows. bias: (N). Of float4_e2m1fn_x2 a is (M, K / 2) and b
    (K / 2, N). scales and recipes are as those of `pytest_probe.dequantize`, in lists; orders says how each lies.
    """
    dtype = torch.promote_types(scales_a[0].dtype, torch.float32)
    left, right = numbers(a, dtype), numbers(b, dtype, 0).t()
    check_shapes(
        left.dim() == right.dim() == 2 and left.shape[1] == right.shape[1],
        f"matrices of {list(left.shape)} and {list(right.t().shape)} numbers",
        "(M, K) and (K, N)",
    )
    first = scaled(at_least_float32(left), scales_a, [recipe_named(name) for name in recipes_a], orders[0])
    second = scaled(at_least_float32(right), scales_b, [recipe_named(name) for name in recipes_b], orders[1])
    product = first @ second.t()
    return product if bias is None else product + bias
