"""The operands of a scaled product, `scaled_mm` or `scaled_grouped_mm`, by the canonical names of its parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import BrokenCall
from pytest_probe.model.run import BoundCall, Leaf
from pytest_probe.numerics.dtypes import PACKED, AnyArray, Float64Array, dtype_name, is_packed, unpacked, widen
from pytest_probe.numerics.scaled import (
    RECIPES,
    BlockStatistics,
    Order,
    Recipe,
    block_statistics,
    check_scales,
    counted,
    expanded,
    is_swizzled,
    laid_out,
    recipe_named,
)

NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", PACKED)
_BY_DTYPE = {"float8_e8m0fnu": "BlockWise1x32", "float8_e4m3fn": "BlockWise1x16"}


class Scaling(Struct, frozen=True):
    """How an operand is scaled: by these recipes; order is that of the first one's scales."""

    recipes: tuple[Recipe, ...] = ()
    order: Order = "grid"


class Operand(Struct, frozen=True):
    """A matrix as a call has it, axis being that of the numbers that a product adds up, and its scales as they are
    stored, one array for each recipe."""

    matrix: AnyArray
    axis: int
    scales: tuple[AnyArray, ...]
    scaling: Scaling

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, in numbers."""
        columns = self.matrix.shape[self.axis] * (2 if is_packed(self.matrix) else 1)
        return self.matrix.shape[1 - self.axis], columns

    def numbers(self) -> Float64Array:
        """The numbers without their scales, of this shape."""
        own = widen(unpacked(self.matrix, self.axis) if is_packed(self.matrix) else self.matrix)
        return own if self.axis else own.T

    def grid(self) -> Float64Array:
        """The scale of each block of the first recipe."""
        return widen(laid_out(self.scales[0], self.scaling.recipes[0], self.shape, self.scaling.order))

    def blocks(self) -> BlockStatistics:
        """What the blocks of the first recipe hold, of an operand that has numbers."""
        packed = is_packed(self.matrix)
        own = unpacked(self.matrix, self.axis) if packed else self.matrix
        codes, grid = own.view(np.uint8), self.grid()
        numbers = counted(codes if self.axis else codes.T, dtype_name(own.dtype), grid, self.scaling.recipes[0])
        return block_statistics(numbers.tolist(), grid.size)

    def scaled(self, grid: Float64Array | None = None) -> Float64Array:
        """Each number times its scales; grid: other ones than its own for the first recipe."""
        grid = self.grid() if grid is None else grid
        return self._of_all(self.numbers() * expanded(grid, self.scaling.recipes[0], self.shape))

    def scaled_rows(self, step: int) -> Float64Array:
        """Each number of every step-th row times its scales."""
        recipe = self.scaling.recipes[0]
        part = replace(self, matrix=self.matrix[::step] if self.axis else self.matrix[:, ::step])
        grid = self.grid()[np.arange(0, self.shape[0], step) // (recipe.rows or self.shape[0])]
        return self._of_all(part.numbers() * expanded(grid, Recipe(recipe.name, 1, recipe.columns), part.shape))

    def _of_all(self, numbers: Float64Array) -> Float64Array:
        """Times the scales that all numbers share."""
        for further in self.scales[1:]:
            numbers = numbers * widen(further).reshape(-1)[0]
        return numbers


def operands(call: BoundCall) -> tuple[Operand, Operand]:
    """Of a product of two matrices. Raises BrokenCall where operands or scales are none of the recipe's."""
    found = _operand(call, "a", 1), _operand(call, "b", 0)
    for operand in found:
        for place, (scales, recipe) in enumerate(zip(operand.scales, operand.scaling.recipes, strict=True)):
            order = "grid" if place else operand.scaling.order
            check_scales(recipe, operand.shape, order, scales.shape, dtype_name(scales.dtype))
    return found


def _operand(call: BoundCall, side: str, axis: int) -> Operand:
    matrix = checked_matrix(call, side)
    if matrix.ndim != 2:
        raise BrokenCall(f"{call.api}: an operand of shape {list(matrix.shape)}, expected a matrix")
    bare = Operand(matrix, axis, scales_of(call, side), Scaling())
    return Operand(matrix, axis, bare.scales, scaling_of(call, side, bare.shape))


def checked_matrix(call: BoundCall, side: str) -> AnyArray:
    """The first operand, "a", or the second, "b"."""
    value = _array(call.argument("input" if side == "a" else "mat2"))
    found = "no tensor" if value is None else dtype_name(value.dtype)
    if value is None or found not in NARROW:
        raise BrokenCall(f"{call.api}: an operand of {found}, expected one of {', '.join(NARROW)}")
    return value


def scales_of(call: BoundCall, side: str) -> tuple[AnyArray, ...]:
    """The scales of an operand: a tensor, or a list with one for each recipe."""
    found = tuple(array for each in listed(call.argument(f"scale_{side}")) if (array := _array(each)) is not None)
    if not found:
        raise BrokenCall(f"{call.api}: scale_{side} has no tensor, expected one for each recipe")
    return found


def _array(value: Any) -> AnyArray | None:
    value = value.array if isinstance(value, Leaf) else value
    return value if isinstance(value, np.ndarray) else None


def listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def scaling_of(call: BoundCall, side: str, shape: tuple[int, int] | None) -> Scaling:
    """How an operand of this shape is scaled, None: an operand of several groups. Without a recipe dtypes and shapes of
    the scales tell, as in torch's first versions of these calls."""
    scales = scales_of(call, side)
    given = call.argument(f"recipe_{side}")
    if given is None:
        return _inferred(call, side, scales[0], shape)
    recipes = tuple(recipe_named(each) for each in listed(given))
    if len(recipes) != len(scales):
        raise BrokenCall(
            f"{call.api}: {len(scales)} scales for {len(recipes)} recipes of {side}, expected one for each"
        )
    if any(is_swizzled(each) for each in listed(call.argument(f"swizzle_{side}"))):
        return Scaling(recipes, "swizzled")
    return Scaling(recipes, "columns first" if recipes[0].rows > 1 else "grid")


def _inferred(call: BoundCall, side: str, scales: AnyArray, shape: tuple[int, int] | None) -> Scaling:
    name = _BY_DTYPE.get(dtype_name(scales.dtype))
    if name is not None:
        return Scaling((RECIPES[name],), "swizzled")
    if shape is None:
        return Scaling((RECIPES["RowWise"],))
    for recipe in map(RECIPES.__getitem__, ("TensorWise", "RowWise", "BlockWise1x128", "BlockWise128x128")):
        grid = recipe.blocks(shape)
        if scales.size == 1 == grid[0] * grid[1] or scales.shape == (grid if side == "a" else grid[::-1]):
            return Scaling((recipe,), "grid" if side == "a" else "columns first")
    raise BrokenCall(
        f"{call.api}: scale_{side} of shape {list(scales.shape)} for {shape[0]} rows of {shape[1]} numbers: no recipe "
        "has such scales"
    )


def scaling_of_values(shape: tuple[int, int], scales: tuple[int, ...], dtype: str) -> Scaling | None:
    """How a matrix of this shape is scaled that has scales of a shape and dtype; None where no recipe has
    such scales."""
    names = [_BY_DTYPE[dtype]] if dtype in _BY_DTYPE else [name for name in RECIPES if RECIPES[name].scales == (dtype,)]
    orders: tuple[Order, ...] = ("grid", "swizzled") if dtype in _BY_DTYPE else ("grid",)
    found = []
    for recipe, order in itertools.product(map(RECIPES.__getitem__, names), orders):
        with suppress(BrokenCall):
            check_scales(recipe, shape, order, scales, dtype)
            found.append(Scaling((recipe,), order))
    # Several have as many scales: those of the same shape come first.
    return min(found, key=lambda each: each.recipes[0].blocks(shape) != scales, default=None)
