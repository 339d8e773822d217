"""Products of matrices whose numbers share scales (FP8, MXFP8, MXFP4, NVFP4): each number times its scale, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from msgspec import Struct

from pytest_probe.numerics.dtypes import PACKED
from pytest_probe.numerics.scaled import Order, Recipe, laid_out, recipe_named
from pytest_probe.references.arguments import at_least_float32, check_shapes

FLOAT4: torch.dtype | None = getattr(torch, PACKED, None)  # since torch 2.8
# Scales of so many places are multiplied with sums, those of fewer with numbers: cuBLAS, "Scaling factors".
_AFTER = 128
_NUMBERS = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def float4_codes(pairs: torch.Tensor, axis: int = -1) -> torch.Tensor:
    """The four bits of each number of a float4_e2m1fn_x2, uint8, twice as many along the axis in which two share a
    byte."""
    data = pairs.detach().view(torch.uint8).movedim(axis, -1)
    return torch.stack((data & 0xF, data >> 4), -1).flatten(-2).movedim(-1, axis)


def numbers(matrix: torch.Tensor, dtype: torch.dtype = torch.float64, axis: int = -1) -> torch.Tensor:
    """A matrix's numbers: of float4_e2m1fn_x2 in `dtype`, twice as many along the axis in which two share a byte; any
    other matrix itself."""
    if matrix.dtype is not FLOAT4:
        return matrix
    codes = float4_codes(matrix, axis)
    return torch.from_numpy(_NUMBERS).to(codes.device, dtype)[codes.long()]


class Scales(Struct, frozen=True):
    """The scales of a matrix, one tensor for each recipe; order is that of the first."""

    stored: Sequence[torch.Tensor] = ()
    recipes: Sequence[Recipe] = ()
    order: Order = "grid"

    def grids(self, shape: tuple[int, int]) -> Iterator[tuple[torch.Tensor, Recipe]]:
        """The scale of each block of a matrix of this shape, by recipe."""
        for place, (stored, recipe) in enumerate(zip(self.stored, self.recipes, strict=True)):
            yield laid_out(stored, recipe, shape, "grid" if place else self.order), recipe


class _Side(Struct, frozen=True):
    """An operand, shape (rows, K): numbers that are multiplied and added up, and what sums of `step` places are
    multiplied with then, shape (rows or 1, steps or 1)."""

    numbers: torch.Tensor
    factors: Sequence[torch.Tensor]
    step: int

    def part(self, start: int, step: int) -> torch.Tensor:
        return self.numbers[:, start : start + step]

    def scaled(self, product: torch.Tensor, start: int) -> torch.Tensor:
        """A product of which this is the first operand."""
        for factor in self.factors:
            place = start // self.step if factor.shape[1] > 1 else 0
            product = product * factor[:, place, None]
        return product


def _side(matrix: torch.Tensor, scales: Scales) -> _Side:
    factors, step = [], matrix.shape[1]
    for grid, recipe in scales.grids((matrix.shape[0], matrix.shape[1])):
        rows = grid.repeat_interleave(recipe.rows, 0)[: matrix.shape[0]] if recipe.rows > 1 else grid
        if 0 < recipe.columns < _AFTER:
            matrix = matrix * rows.repeat_interleave(recipe.columns, 1)[:, : matrix.shape[1]]
        else:
            factors.append(rows)
            step = recipe.columns or step
    return _Side(matrix, factors, step)


def scaled_product(left: torch.Tensor, right: torch.Tensor, of_left: Scales, of_right: Scales) -> torch.Tensor:
    """(left times its scales) @ (right times its scales)^T, shapes (M, K) and (N, K).

    As devices compute it: scales that all numbers of a sum share, or 128 of them, are multiplied with the sum.
    """
    first, second = _side(left, of_left), _side(right, of_right)
    step = max(min(first.step, second.step), 1)
    total: torch.Tensor | None = None
    for start in range(0, max(left.shape[1], 1), step):
        product = first.part(start, step) @ second.part(start, step).t()
        product = second.scaled(first.scaled(product, start).t(), start).t()
        total = product if total is None else total + product
    assert total is not None
    return total


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
    of_a = Scales(scales_a, [recipe_named(name) for name in recipes_a], orders[0])
    of_b = Scales(scales_b, [recipe_named(name) for name in recipes_b], orders[1])
    product = scaled_product(at_least_float32(left), at_least_float32(right), of_a, of_b)
    return product if bias is None else product + bias
