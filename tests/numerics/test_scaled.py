from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.errors import BrokenCall
from pytest_probe.numerics.dtypes import is_packed, numpy_dtype, packed, unpacked, widen
from pytest_probe.numerics.scaled import (
    RECIPES,
    BlockStatistics,
    Order,
    Recipe,
    block_statistics,
    counted,
    dequantized,
    laid_out,
    places,
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


# Rows and blocks of columns: on, below and beyond the borders of tiles.
SHAPES = [(rows, columns) for rows in (1, 31, 33, 128, 129, 300) for columns in (1, 4, 5, 13)]


GRID = Recipe("", 1, 1)


def swizzled(scales: np.ndarray) -> np.ndarray:
    """A grid of scales as it is stored, padded with bytes of 0."""
    shape = scales.shape[0], scales.shape[1]
    stored = np.zeros(stored_count(GRID, shape, "swizzled"), scales.dtype)
    stored[places(GRID, shape, "swizzled")] = scales
    return stored


def cublas_offset(outer: int, inner: int, columns: int) -> int:
    """Where cuBLAS has a scale, to the letter of its documentation ("1D block scaling factors layout")."""
    tiles = -(-columns // 4)
    base = ((outer // 128) * tiles + inner // 4) * 128 * 4
    return base + (outer % 32) * 16 + (outer % 128 // 32) * 4 + inner % 4


@pytest.mark.parametrize("shape", SHAPES)
def test_a_swizzled_scale_lies_where_cublas_has_it(shape: tuple[int, int]) -> None:
    scales = np.random.default_rng(0).integers(1, 255, size=shape).astype(np.uint8).view(numpy_dtype("float8_e8m0fnu"))
    stored = swizzled(scales)
    assert stored.size == -(-shape[0] // 128) * 128 * -(-shape[1] // 4) * 4
    found = np.zeros(shape, np.uint8)
    for row in range(shape[0]):
        for column in range(shape[1]):
            found[row, column] = stored.view(np.uint8)[cublas_offset(row, column, shape[1])]
    assert np.array_equal(found, scales.view(np.uint8))
    assert np.array_equal(stored[places(GRID, shape, "swizzled")].view(np.uint8), scales.view(np.uint8))
    assert np.count_nonzero(stored.view(np.uint8)) == scales.size


@pytest.mark.parametrize("shape", SHAPES)
def test_it_lies_where_torch_puts_it(shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    quantized = pytest.importorskip("torch.testing._internal.common_quantized")
    scales = np.random.default_rng(1).integers(1, 255, size=shape).astype(np.uint8)
    assert np.array_equal(quantized.to_blocked(torch.from_numpy(scales)).numpy(), swizzled(scales))


def exactly(value: Any) -> Fraction:
    return Fraction(float(value))


@pytest.mark.parametrize(
    ("recipe", "values", "scales"),
    [
        ("TensorWise", "float8_e4m3fn", "float32"),
        ("RowWise", "float8_e5m2", "float32"),
        ("BlockWise1x16", "float4_e2m1fn", "float8_e4m3fn"),
        ("BlockWise1x32", "float8_e4m3fnuz", "float8_e8m0fnu"),
        ("BlockWise1x32", "float4_e2m1fn", "float8_e8m0fnu"),
        ("BlockWise1x128", "float8_e4m3fn", "float32"),
        ("BlockWise128x128", "float8_e4m3fn", "float32"),
    ],
)
@pytest.mark.parametrize("shape", [(5, 256), (130, 40), (1, 300)])
def test_products_are_exact(recipe: str, values: str, scales: str, shape: tuple[int, int]) -> None:
    """Against fractions; the last block of columns, and of rows, may be cut."""
    rng, own = np.random.default_rng(2), RECIPES[recipe]
    numbers = rng.integers(0, 16 if "float4" in values else 120, size=shape).astype(np.uint8).view(numpy_dtype(values))
    grid = own.blocks(shape)
    factors = (rng.random(grid).astype(np.float32) if scales == "float32" else rng.integers(90, 120, size=grid)).astype(
        np.float32 if scales == "float32" else np.uint8
    )
    factors = factors if scales == "float32" else factors.view(numpy_dtype(scales))
    found = dequantized(numbers, factors, recipe)
    for row, column in ((0, 0), (shape[0] - 1, shape[1] - 1), (shape[0] // 2, 33)):
        block = row // (own.rows or shape[0]), column // (own.columns or shape[1])
        assert exactly(found[row, column]) == exactly(numbers[row, column]) * exactly(factors[block])


def test_every_code_of_a_power_is_two_to_b_minus_127() -> None:
    codes = np.arange(256, dtype=np.uint8)[:, None]
    found = dequantized(np.ones((256, 32), np.float32), codes.view(numpy_dtype("float8_e8m0fnu")), "BlockWise1x32")[
        :, 0
    ]
    assert found[:255].tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert np.isnan(found[255])


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2"])
def test_a_scale_of_one_leaves_every_code(dtype: str) -> None:
    codes = np.arange(256, dtype=np.uint8)[:, None].view(numpy_dtype(dtype))
    found = dequantized(codes, np.ones(256, np.float32), "RowWise")
    assert np.array_equal(found, widen(unpacked(codes) if is_packed(codes) else codes), equal_nan=True)


def test_two_levels_are_multiplied() -> None:
    values = packed(np.full((2, 32), 3.0, ml_dtypes.float4_e2m1fn))
    blocks = np.array([[2.0, 0.5], [448.0, 2.0**-9]], ml_dtypes.float8_e4m3fn)
    found = dequantized(values, [blocks, np.full(1, 0.25, np.float32)], ["BlockWise1x16", "TensorWise"])
    assert found[:, ::16].tolist() == [[1.5, 0.375], [336.0, 3 * 2.0**-11]]


def test_orders_of_scales_are_the_same_scales() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 100, size=(300, 512)).astype(np.uint8).view(numpy_dtype("float8_e4m3fn"))
    scales = rng.integers(100, 140, size=(300, 16)).astype(np.uint8).view(numpy_dtype("float8_e8m0fnu"))
    plain = dequantized(values, scales, "BlockWise1x32")
    assert np.array_equal(plain, dequantized(values, swizzled(scales), "BlockWise1x32", swizzle="SWIZZLE_32_4_4"))
    assert np.array_equal(plain, dequantized(values, swizzled(scales).reshape(384, 16), 3, swizzle=1))
    blocks = rng.random((3, 4)).astype(np.float32)
    square = dequantized(values, blocks, "BlockWise128x128")
    assert np.array_equal(square, dequantized(values, blocks.T, "BlockWise128x128", columns_first=True))


def test_padding_of_128_x_128_scales_is_not_read() -> None:
    values = np.ones((256, 300), np.float32)
    blocks = np.arange(6, dtype=np.float32).reshape(2, 3)
    padded = np.concatenate([blocks.T, np.full((1, 2), np.nan, np.float32)])
    assert np.array_equal(
        dequantized(values, padded, "BlockWise128x128", columns_first=True),
        dequantized(values, blocks, "BlockWise128x128"),
    )


def test_rows_of_leading_dimensions_count_together() -> None:
    values, scales = np.ones((2, 3, 64), np.float32), np.arange(6, dtype=np.float32)
    assert dequantized(values, scales, "RowWise")[:, :, 0].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("scales", "recipe", "swizzle", "message"),
    [
        (np.ones((4, 2), np.float32), "BlockWise1x32", None, "scales of float32, expected float8_e8m0fnu"),
        (np.ones((4, 2), ml_dtypes.float8_e8m0fnu), "BlockWise1x32", None, r"shape \[4, 2\], 8 in all, expected 12"),
        (np.ones((3, 4), ml_dtypes.float8_e8m0fnu), "BlockWise1x32", None, "a grid of 4 x 3"),
        (np.ones((4, 3), ml_dtypes.float8_e8m0fnu), "BlockWise1x32", 1, "expected 512 .* padded to tiles of 128 x 4"),
        (np.ones(5, np.float32), "RowWise", None, "expected 4 for a matrix of 4 rows of 96 numbers"),
        (np.ones(4, np.float32), "RowWise", 1, "scales of float32 are not swizzled"),
        (np.ones(1, np.float32), "PerTensor", None, "the recipe is 'PerTensor', expected one of TensorWise, RowWise"),
        (np.ones(1, np.float32), 9, None, "the recipe is 9, expected one of"),
        (np.ones(1, np.float32), "TensorWise", "32x4x4", "the swizzle is '32x4x4', expected one of NO_SWIZZLE"),
        ([np.ones(1, np.float32)] * 2, "TensorWise", None, "2 scales for 1 recipes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(scales: Any, recipe: Any, swizzle: Any, message: str) -> None:
    with pytest.raises(BrokenCall, match=message):
        dequantized(np.ones((4, 96), ml_dtypes.float8_e4m3fn), scales, recipe, swizzle=swizzle)


def test_each_scale_has_one_place() -> None:
    for recipe in RECIPES.values():
        for order in ("grid", "columns first", "swizzled"):
            found = places(recipe, (300, 700), order)
            assert found.shape == recipe.blocks((300, 700))
            assert np.unique(found).size == found.size
    assert widen(numpy_dtype("float8_e8m0fnu").type(1)) == 1
