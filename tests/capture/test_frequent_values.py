from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import count_large, fill_together


def told(*arrays: np.ndarray) -> list[dict[str, Any]]:
    seen = [Seen("torch.Tensor", str(one.dtype), one.shape, False) for one in arrays]
    fill_together(np.concatenate([one.reshape(-1) for one in arrays]), [one.size for one in arrays], seen)
    return [{key: getattr(one, key) for key in ("zeros", "mode", "constant_rows") if getattr(one, key)} for one in seen]


def normal(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((32, 64)).astype(np.float32)


def test_zeros_are_counted_in_each_array() -> None:
    few = normal()
    few[3, :7] = [0.0, -0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert told(normal(1), few, normal(2), np.maximum(normal(3), 0)) == [
        {},
        {"zeros": 7 / 2048},
        {},
        {"zeros": float((normal(3) <= 0).mean())},
    ]


def test_the_most_frequent_other_value_and_its_share() -> None:
    clipped = np.clip(normal(), -0.5, 9)
    share = float((clipped == np.float32(-0.5)).mean())
    assert told(normal(1), clipped) == [{}, {"mode": [-0.5, share]}]


def test_constant_rows_and_what_they_hold() -> None:
    padded, own = normal(), normal(1)
    padded[20:] = 0
    own[:8] = own[:8, :1]
    assert told(padded, own) == [{"zeros": 12 / 32, "constant_rows": [12 / 32, 0.0]}, {"constant_rows": [8 / 32, None]}]


def test_rows_that_are_equal_by_chance_are_not_told() -> None:
    pairs = np.random.default_rng(0).standard_normal((1000, 2))
    pairs[np.random.default_rng(1).random(pairs.shape) < 0.9] = 0
    assert list(told(pairs)[0]) == ["zeros"]


@pytest.mark.parametrize("values", [np.full((8, 8), 2.5), np.zeros((8, 8)), np.ones(1)])
def test_of_a_constant_the_extremes_tell(values: np.ndarray) -> None:
    (found,) = told(values)
    assert set(found) <= {"zeros"}


def test_neighbours_in_two_arrays_are_no_tie() -> None:
    assert told(*(np.array([1.0, 2.0, 1.0]) for _ in range(40))) == [{}] * 40


def test_signs_of_inf_are_counted() -> None:
    values = np.array([1.0, math.inf, -math.inf, -math.inf])
    seen = Seen("torch.Tensor", "torch.float64", (4,), False)
    fill_together(values, [4], [seen])
    assert (seen.inf, seen.negative_inf, seen.zeros) == (3, 2, 0)


def counted(array: np.ndarray) -> Seen:
    seen = Seen("paddle.Tensor", array.dtype.name, array.shape, False)
    count_large(array, seen)
    return seen


@given(
    dtype=st.sampled_from(["float64", "float32", "float16", "int64", "int32", "int8", "uint8"]),
    size=st.integers(1, 40_000),
    seed=st.integers(0, 2**32 - 1),
    positive=st.booleans(),
)
def test_statistics_of_large_arrays_equal_numpys(dtype: str, size: int, seed: int, positive: bool) -> None:
    wide = np.random.default_rng(seed).normal(0, 20, size)
    array = (np.abs(wide) if positive or dtype == "uint8" else wide).astype(dtype)
    seen, exact = counted(array), array.astype(np.float64)
    assert (seen.max, seen.min) == (array.max(), array.min())
    assert seen.norm == pytest.approx(math.sqrt(float(np.dot(exact, exact))), rel=1e-6)
    assert seen.mean == pytest.approx(float(exact.mean()), rel=1e-6, abs=1e-9)


def test_rows_that_are_no_multiple_of_their_width() -> None:
    array = np.full(10_000, 0.1, np.float32)
    array[-1] = 7.0
    seen = counted(array)
    assert seen.mean == pytest.approx((9_999 * float(np.float32(0.1)) + 7.0) / 10_000, rel=5e-7)


def test_squares_that_overflow_float32() -> None:
    assert counted(np.full(10_000, 1e30, np.float32)).norm == pytest.approx(1e32, rel=1e-6)
