"""Matrices whose numbers share scales: which scale each number has, where it is stored, and the product of both;
how far the scales of blocks lie apart, and how many numbers are clipped or lost. Counting takes arrays of NumPy's or
tensors of torch's, and waits for no device: `counted` gives numbers where the matrix is, of which `block_statistics`
makes statistics.

A matrix has `rows` rows (of A in A @ B; of B its columns) of `columns` numbers, which a product adds up. A recipe says
how many of them share a scale. Recipes, dtypes and the order of scales are those of torch 2.13 (ScalingType,
SwizzleType, ATen/native/cuda/ScaledBlas.cpp, which follow cuBLAS: "1D block scaling factors layout").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_probe.errors import BrokenCall
from pytest_probe.numerics.dtypes import (
    AnyArray,
    Float64Array,
    dtype_name,
    float_format,
    is_packed,
    numpy_dtype,
    unpacked,
    widen,
)

IntArray: TypeAlias = npt.NDArray[np.int64]
# How the scales of one operand lie. grid: row by row; columns first: transposed, as torch has those of 128 x 128 blocks
# and `_scaled_mm` those of its second matrix; swizzled: SwizzleType.SWIZZLE_32_4_4.
Order: TypeAlias = Literal["grid", "columns first", "swizzled"]

# A swizzled tile has 128 x 4 scales, of 128 rows and 4 blocks of columns.
TILE_ROWS, TILE_COLUMNS = 128, 4
# Rows of scales of 128 x 128 blocks, a block of columns each, are padded to so many.
_PADDED = 4


class Recipe(Struct, frozen=True):
    """Blocks of so many rows and columns share a scale; 0: all. scales are the dtypes that scales may have."""

    name: str
    rows: int
    columns: int
    scales: tuple[str, ...] = ("float32",)

    def blocks(self, shape: tuple[int, int]) -> tuple[int, int]:
        """How many blocks a matrix has along its rows, and along its columns. The last may be cut."""
        return _blocks(shape[0], self.rows), _blocks(shape[1], self.columns)


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("TensorWise", 0, 0),
        Recipe("RowWise", 1, 0),
        Recipe("BlockWise1x16", 1, 16, ("float8_e4m3fn",)),
        Recipe("BlockWise1x32", 1, 32, ("float8_e8m0fnu",)),
        Recipe("BlockWise1x128", 1, 128),
        Recipe("BlockWise128x128", 128, 128),
    )
}
# The recipe of the block scales of formats that are known by a name.
_FORMATS = {"mxfp8": "BlockWise1x32", "mxfp4": "BlockWise1x32", "nvfp4": "BlockWise1x16"}
# As torch numbers them, ScalingType and SwizzleType.
RECIPE_NAMES = tuple(RECIPES)
SWIZZLES = ("NO_SWIZZLE", "SWIZZLE_32_4_4")


def recipe_named(recipe: object) -> Recipe:
    """The recipe of a name, of torch's number for it, or of its ScalingType. Raises BrokenCall."""
    name = _word(recipe, RECIPE_NAMES)
    name = _FORMATS.get(name, name)
    if name not in RECIPES:
        raise BrokenCall(f"the recipe is {recipe!r}, expected one of {', '.join((*RECIPES, *_FORMATS))}")
    return RECIPES[name]


def is_swizzled(swizzle: object) -> bool:
    """Is it SWIZZLE_32_4_4, by its name, torch's number or SwizzleType? None is NO_SWIZZLE. Raises BrokenCall."""
    name = "NO_SWIZZLE" if swizzle is None else _word(swizzle, SWIZZLES)
    if name not in SWIZZLES:
        raise BrokenCall(f"the swizzle is {swizzle!r}, expected one of {', '.join(SWIZZLES)}")
    return name == SWIZZLES[1]


def _word(value: object, words: Sequence[str]) -> str:
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    return words[value] if type(value) is int and 0 <= value < len(words) else ""


def laid_out(stored: Any, recipe: Recipe, shape: tuple[int, int], order: Order) -> Any:
    """The scale of each block of a matrix, of shape recipe.blocks(shape), from the stored scales: an array of NumPy's,
    or a tensor of torch's, which waits for no device. Those of several matrices of this shape, one after the other, are
    of shape (matrices, *recipe.blocks(shape))."""
    rows, columns = recipe.blocks(shape)
    several = -1 if rows * columns else 1
    if order == "columns first":
        return stored.reshape(-1)[: rows * columns].reshape(columns, rows).T
    if order == "swizzled":
        high, wide = _blocks(rows, TILE_ROWS), _blocks(columns, TILE_COLUMNS)
        # Of a tile: 32 rows, then of each the rows 32, 64 and 96 below it, with four columns.
        tiles = stored.reshape(several, high, wide, 32, TILE_ROWS // 32, TILE_COLUMNS).swapaxes(2, 4)
        found = tiles.reshape(several, high * TILE_ROWS, wide * TILE_COLUMNS)[:, :rows, :columns]
    else:
        found = stored.reshape(several, rows, columns)
    return found[0] if len(found) == 1 else found


def places(recipe: Recipe, shape: tuple[int, int], order: Order) -> IntArray:
    """Where the scale of each block is stored, of shape recipe.blocks(shape): its index among the stored scales in
    their order."""
    return np.asarray(laid_out(np.arange(stored_count(recipe, shape, order)), recipe, shape, order), np.int64)


def stored_count(recipe: Recipe, shape: tuple[int, int], order: Order) -> int:
    """How many scales are stored, padding included."""
    rows, columns = recipe.blocks(shape)
    if order == "swizzled":
        return _blocks(rows, TILE_ROWS) * TILE_ROWS * _blocks(columns, TILE_COLUMNS) * TILE_COLUMNS
    if order == "columns first" and recipe.rows > 1:
        return rows * _blocks(columns, _PADDED) * _PADDED
    return rows * columns


def check_scales(recipe: Recipe, shape: tuple[int, int], order: Order, found: tuple[int, ...], dtype: str) -> None:
    """Raises BrokenCall where stored scales of this shape and dtype are none of the recipe's, for a matrix of this
    shape. Scales of 128 x 128 blocks, columns first, may be padded or not."""
    if dtype not in recipe.scales:
        raise BrokenCall(f"{recipe.name}: scales of {dtype}, expected {' or '.join(recipe.scales)}")
    rows, columns = recipe.blocks(shape)
    if order == "swizzled" and recipe.scales == RECIPES["TensorWise"].scales:
        raise BrokenCall(
            f"{recipe.name} with {SWIZZLES[1]}, expected {SWIZZLES[0]}: scales of float32 are not swizzled"
        )
    counts = {stored_count(recipe, shape, order)}
    if order == "columns first":
        counts.add(rows * columns)
    along = columns if order == "columns first" else rows
    whole = (
        order == "swizzled"
        or 1 in (rows, columns)
        or (found[:1] and found[0] in (along, _blocks(along, _PADDED) * _PADDED))
    )
    if math.prod(found) not in counts or not whole:
        wanted = " or ".join(f"{count:,}" for count in sorted(counts))
        grid = f"{columns} x {rows}" if order == "columns first" else f"{rows} x {columns}"
        tiles = f", padded to tiles of {TILE_ROWS} x {TILE_COLUMNS}" if order == "swizzled" else ""
        raise BrokenCall(
            f"{recipe.name}: scales of shape {list(found)}, {math.prod(found):,} in all, expected {wanted} for a "
            f"matrix of {shape[0]} rows of {shape[1]} numbers: a grid of {grid}{tiles}"
        )


def _blocks(extent: int, size: int) -> int:
    return 1 if not size else -(-extent // size)


def expanded(grid: AnyArray, recipe: Recipe, shape: tuple[int, int]) -> AnyArray:
    """The scale of each number, of the matrix's shape, from a grid of shape recipe.blocks(shape)."""
    for axis, size in ((0, recipe.rows), (1, recipe.columns)):
        grid = np.repeat(grid, size or shape[axis], axis=axis)
    return grid[: shape[0], : shape[1]]


def dequantized(
    values: AnyArray,
    scales: AnyArray | Sequence[AnyArray],
    recipe: object,
    *,
    swizzle: object = None,
    columns_first: bool = False,
) -> Float64Array:
    """The numbers that scaled values stand for, in float64 and exact: see `pytest_probe.dequantize`, whose arguments
    these are, as arrays. Raises BrokenCall, which says what the recipe asks."""
    numbers = widen(unpacked(values) if is_packed(values) else values)
    if numbers.ndim < 2:
        raise BrokenCall(f"values of shape {list(values.shape)}, expected a matrix: (..., rows, columns)")
    recipes = recipe if isinstance(recipe, (list, tuple)) else [recipe]
    given = scales if isinstance(scales, (list, tuple)) else [scales]
    if len(recipes) != len(given):
        raise BrokenCall(f"{len(given)} scales for {len(recipes)} recipes, expected one for each")
    matrix = numbers.reshape(-1, numbers.shape[-1])
    first: Order = "swizzled" if is_swizzled(swizzle) else "columns first" if columns_first else "grid"
    for place, (name, own) in enumerate(zip(recipes, given, strict=True)):
        recipe, stored = recipe_named(name), np.asarray(own)
        order: Order = "grid" if place else first
        check_scales(recipe, matrix.shape, order, stored.shape, dtype_name(stored.dtype))
        matrix = matrix * expanded(widen(laid_out(stored, recipe, matrix.shape, order)), recipe, matrix.shape)
    return np.asarray(matrix.reshape(numbers.shape))


class BlockStatistics(Struct, frozen=True):
    """Of one matrix. Shares are of 1; clipped: numbers of the dtype's largest magnitude, flushed: zeros, for example
    because they were too small for their block's scale; the largest share of any block for itself. binades: log2 of the
    largest scale over the smallest that is not zero; not_finite: scales that are NaN or inf."""

    blocks: int
    binades: float
    not_finite: int
    clipped: float
    clipped_in_a_block: float
    flushed: float
    flushed_in_a_block: float

    def describe(self) -> str:
        lost = f", {self.not_finite:,} of them not finite" if self.not_finite else ""
        return (
            f"{self.blocks:,} scales over {self.binades:.3g} binades{lost}; {self.clipped:.2%} of the numbers are the "
            f"largest, {self.clipped_in_a_block:.2%} in one block; {self.flushed:.2%} are zero, "
            f"{self.flushed_in_a_block:.2%} in one block"
        )


# The shares among them, in the order of the fields.
SHARES = ("clipped", "clipped_in_a_block", "flushed", "flushed_in_a_block")


def counted(codes: Any, dtype: str, grid: Any, recipe: Recipe, library: Any = np) -> Any:
    """The numbers of a matrix that `block_statistics` takes, shape (7,), of grid's dtype.

    codes: the bits of each number, uint8, shape (rows, columns), neither of them 0; dtype is what they are of. grid:
    the scale of each block of the recipe, in float64, or in float32 where a device has no wider one. library is the
    module whose arrays these are, NumPy or torch.
    """

    def number(value: Any) -> Any:
        return library.asarray(value, dtype=grid.dtype)

    size = library.abs(grid)
    # A mask that chooses would be waited for, and so would a number that `where` has to take to the device.
    with np.errstate(divide="ignore"):
        found = [library.nan_to_num(each, nan=0.0, posinf=0.0).max() for each in (size, 1 / size)]
    found.append(number((~library.isfinite(grid)).sum()))
    for magnitude in (float_format(dtype).max, 0.0):
        # Which numbers have a magnitude.
        one, other = np.array([magnitude, -magnitude]).astype(numpy_dtype(dtype)).view(np.uint8).tolist()
        # Two codes of a magnitude differ by the sign alone.
        counts = list(_in_blocks((codes | (one ^ other)) == (one | other) if one != other else codes == one, recipe))
        found.append(sum(number(each.sum()) for each, _ in counts) / math.prod(codes.shape))
        found.append(library.stack([number(each.max()) / extent for each, extent in counts]).max())
    return library.stack(found)


def block_statistics(numbers: Sequence[float], blocks: int) -> BlockStatistics:
    """Of the numbers that `counted` gave, and how many blocks there are."""
    largest, inverse_of_smallest, not_finite, *shares = numbers
    binades = math.log2(largest) + math.log2(inverse_of_smallest) if largest else 0.0
    return BlockStatistics(blocks, binades, round(not_finite), *shares)


def _in_blocks(marked: Any, recipe: Recipe) -> Iterator[tuple[Any, int]]:
    """How many numbers of each block are marked, and of how many; the last blocks of rows and columns may be cut."""
    rows, columns = marked.shape
    for top, bottom, high in _parts(rows, recipe.rows):
        for left, right, wide in _parts(columns, recipe.columns):
            blocks = marked[top:bottom, left:right].reshape(-1, high, (right - left) // wide, wide)
            yield blocks.sum((1, 3)), high * wide


def _parts(extent: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Where the whole blocks lie, and the one that is cut, each with its size; 0: one block of all."""
    size = size or extent
    whole = extent // size * size
    if whole:
        yield 0, whole, size
    if extent > whole:
        yield whole, extent, extent - whole
