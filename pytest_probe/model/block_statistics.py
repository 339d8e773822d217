"""What the blocks of a scaled matrix hold: how far their scales lie apart, and how many numbers are clipped or lost."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from pytest_probe.model.scaled_product import Operand
from pytest_probe.numerics.dtypes import PACKED, BoolArray, Float64Array, dtype_name, float_format


class BlockStatistics(Struct, frozen=True):
    """Of one operand of a scaled product. Shares are of 1; clipped: numbers of the dtype's largest magnitude, flushed:
    those that are zero, as because they were too small for their block's scale; the largest share of any block for
    itself. binades: log2 of the largest scale over the smallest that is not zero; not_finite: scales that are NaN."""

    blocks: int
    binades: float
    not_finite: int
    clipped: float
    clipped_in_a_block: float
    flushed: float
    flushed_in_a_block: float


def block_statistics(operand: Operand) -> BlockStatistics:
    """Those of an operand that has numbers."""
    numbers, grid, name = operand.numbers(), operand.grid(), dtype_name(operand.matrix.dtype)
    top = float_format("float4_e2m1fn" if name == PACKED else name).max
    clipped, zero = np.abs(numbers) == top, numbers == 0
    used = np.abs(grid[np.isfinite(grid) & (grid != 0)])
    return BlockStatistics(
        grid.size,
        float(np.log2(used.max() / used.min())) if used.size else 0.0,
        int(np.count_nonzero(~np.isfinite(grid))),
        float(clipped.mean()),
        float(_shares(clipped, operand).max()),
        float(zero.mean()),
        float(_shares(zero, operand).max()),
    )


def _shares(marks: BoolArray, operand: Operand) -> Float64Array:
    """The share of each block that is marked; the last blocks may be cut."""
    recipe, (rows, columns) = operand.scaling.recipes[0], operand.shape
    high, wide = recipe.rows or rows, recipe.columns or columns
    by_rows = np.add.reduceat(marks.astype(np.float64), range(0, rows, high), 0)
    counts = np.add.reduceat(by_rows, range(0, columns, wide), 1)
    sizes = np.outer(*(np.diff([*range(0, extent, size), extent]) for extent, size in ((rows, high), (columns, wide))))
    return np.asarray(counts / sizes)
