from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.capture.snapshot import Seen
from pytest_probe.capture.statistics import count_large


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
