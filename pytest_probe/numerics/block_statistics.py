"""What the blocks of a scaled matrix hold: how far their scales lie apart, and how many numbers are clipped or lost.

The counting takes arrays of NumPy's or tensors of torch's, and waits for no device: `counted` gives numbers where the
matrix is, of which `block_statistics` makes statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import float_format, numpy_dtype
from pytest_probe.numerics.scaled import Recipe


class BlockStatistics(Struct, frozen=True):
    """Of one matrix. Shares are of 1; clipped: numbers of the dtype's largest magnitude, flushed: those that are zero,
    as because they were too small for their block's scale; the largest share of any block for itself. binades: log2 of
    the largest scale over the smallest that is not zero; not_finite: scales that are NaN or inf."""

    blocks: int
    binades: float
    not_finite: int
    clipped: float
    clipped_in_a_block: float
    flushed: float
    flushed_in_a_block: float

    def words(self) -> str:
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
