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
    shares = [
        number(share)
        for marked in (_among(codes, dtype, float_format(dtype).max), _among(codes, dtype, 0.0))
        for share in (number(marked.sum()) / math.prod(marked.shape), _largest_share(marked, recipe, number, library))
    ]
    # A mask that chooses would be waited for, and so would a number that `where` has to take to the device.
    with np.errstate(divide="ignore"):
        scales = [library.nan_to_num(each, nan=0.0, posinf=0.0).max() for each in (size, 1 / size)]
    return library.stack([*scales, number((~library.isfinite(grid)).sum()), *shares])


def block_statistics(numbers: Sequence[float], blocks: int) -> BlockStatistics:
    """Of the numbers that `counted` gave, and how many blocks there are."""
    largest, inverse_of_smallest, not_finite, *shares = numbers
    binades = math.log2(largest) + math.log2(inverse_of_smallest) if largest else 0.0
    return BlockStatistics(blocks, binades, round(not_finite), *shares)


def _among(codes: Any, dtype: str, magnitude: float) -> Any:
    """Which numbers have a magnitude."""
    own, *other = {*np.array([magnitude, -magnitude]).astype(numpy_dtype(dtype)).view(np.uint8).tolist()}
    return (codes == own) | (codes == other[0]) if other else codes == own


def _largest_share(marked: Any, recipe: Recipe, number: Any, library: Any) -> Any:
    """The largest share of a block that is marked; the last blocks may be cut."""
    rows, columns = marked.shape
    shares = []
    for top, bottom, high in _parts(rows, recipe.rows):
        for left, right, wide in _parts(columns, recipe.columns):
            blocks = marked[top:bottom, left:right].reshape(-1, high, (right - left) // wide, wide)
            shares.append(number(blocks.sum((1, 3)).max()) / (high * wide))
    return library.stack(shares).max()


def _parts(extent: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Where the whole blocks lie, and the one that is cut, each with its size; 0: one block of all."""
    size = size or extent
    whole = extent // size * size
    if whole:
        yield 0, whole, size
    if extent > whole:
        yield whole, extent, extent - whole
