from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.model.scaled_product import Operand, Scaling
from pytest_probe.numerics.dtypes import packed
from pytest_probe.numerics.scaled import RECIPES, BlockStatistics


def of(matrix: np.ndarray, scales: np.ndarray, recipe: str) -> BlockStatistics:
    return Operand(matrix, 1, (scales,), Scaling((RECIPES[recipe],))).blocks()


def test_shares_of_blocks_of_which_the_last_is_cut() -> None:
    numbers = np.ones((2, 80))
    numbers[0, 64:72], numbers[1, :16], numbers[1, 70] = 448, 0, -448
    scales = np.array([[1, 2, 4], [0.25, 0.5, np.nan]], ml_dtypes.float8_e8m0fnu)
    found = of(numbers.astype(ml_dtypes.float8_e4m3fn), scales, "BlockWise1x32")
    assert found == BlockStatistics(6, 4.0, 1, 9 / 160, 8 / 16, 16 / 160, 16 / 32)


def test_pairs_of_float4_are_two_numbers() -> None:
    numbers = np.full((1, 32), 0.5)
    numbers[0, :4], numbers[0, 20] = 6, 0
    matrix = packed(numbers.astype(ml_dtypes.float4_e2m1fn))
    found = of(matrix, np.array([[1, 448]], ml_dtypes.float8_e4m3fn), "BlockWise1x16")
    assert found == BlockStatistics(2, float(np.log2(448)), 0, 4 / 32, 4 / 16, 1 / 32, 1 / 16)


@pytest.mark.parametrize("recipe", ["TensorWise", "RowWise", "BlockWise1x128", "BlockWise128x128"])
@pytest.mark.parametrize("axis", [0, 1])
def test_some_rows_are_those_of_all(recipe: str, axis: int) -> None:
    rng, shape = np.random.default_rng(0), (300, 272)
    matrix = rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
    grid = rng.random(RECIPES[recipe].blocks(shape)).astype(np.float32)
    operand = Operand(matrix if axis else matrix.T, axis, (grid,), Scaling((RECIPES[recipe],)))
    for step in (1, 7, 300):
        assert np.array_equal(operand.scaled_rows(step), operand.scaled()[::step])


def test_one_scale_is_that_of_all_numbers() -> None:
    numbers = np.array([[0, 57344], [1, 2]]).astype(ml_dtypes.float8_e5m2)
    assert of(numbers, np.zeros((1, 1), np.float32), "TensorWise") == BlockStatistics(1, 0.0, 0, 0.25, 0.25, 0.25, 0.25)
