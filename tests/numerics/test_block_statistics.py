"""Counting blocks takes arrays of NumPy's and tensors of torch's alike: what a device counts is what the CPU does."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics.dtypes import numpy_dtype
from pytest_probe.numerics.scaled import (
    RECIPES,
    BlockStatistics,
    Order,
    block_statistics,
    counted,
    laid_out,
    stored_count,
)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
@pytest.mark.parametrize("shape", [(1, 16), (3, 272), (130, 400)], ids=str)
def test_tensors_are_counted_as_arrays(shape: tuple[int, int], dtype: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    rng, recipe = np.random.default_rng(0), RECIPES[name]
    codes = rng.choice([0, 1, 56, 0x7B, 0x7E, 0x7F, 0x80, 0xFB, 0xFE], size=shape).astype(np.uint8)
    grid = 2.0 ** rng.integers(-140, 120, size=recipe.blocks(shape))
    grid.flat[: grid.size // 2 : 3], grid.flat[grid.size // 3] = np.nan, 0.0
    found = counted(codes, dtype, grid, recipe)
    by_torch = counted(torch.from_numpy(codes), dtype, torch.from_numpy(grid), recipe, torch)
    assert by_torch.dtype == torch.float64
    assert by_torch.tolist() == found.tolist()
    numbers = np.abs(codes.view(numpy_dtype(dtype)).astype(np.float64))
    statistics = block_statistics(found.tolist(), grid.size)
    assert statistics.flushed == np.mean(numbers == 0)
    assert statistics.clipped == np.mean(numbers == numbers[np.isfinite(numbers)].max())
    assert statistics.not_finite == np.count_nonzero(np.isnan(grid))


def test_scales_that_are_all_zero_spread_over_nothing() -> None:
    codes = np.zeros((2, 32), np.uint8)
    found = counted(codes, "float8_e4m3fn", np.zeros((2, 1)), RECIPES["BlockWise1x32"])
    assert block_statistics(found.tolist(), 2) == BlockStatistics(2, 0.0, 0, 0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("order", ["grid", "swizzled"])
def test_scales_of_several_matrices_lie_one_after_the_other(order: Order) -> None:
    recipe, shape = RECIPES["BlockWise1x32"], (130, 160)
    count = stored_count(recipe, shape, order)
    both = laid_out(np.arange(2 * count), recipe, shape, order)
    one = laid_out(np.arange(count), recipe, shape, order)
    assert np.array_equal(both, [one, one + count])
