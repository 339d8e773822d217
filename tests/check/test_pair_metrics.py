"""How far two tensors lie apart: exact numbers."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.check.pair_metrics import difference


def array(values: list[Any], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


def test_equal_arrays() -> None:
    found = difference(array([1.0, math.nan, -0.0]), array([1.0, math.nan, -0.0]))
    assert found.equal
    assert found.metrics() == {
        "equal_bits": 1.0,
        "largest": 0.0,
        "ulp_max": 0.0,
        "ulp_mean": 0.0,
        "ulp_p99": 0.0,
        "relative_rmse": 0.0,
        "snr_db": math.inf,
        "cosine": 1.0,
    }


def test_zeros_of_two_signs_have_other_bits() -> None:
    found = difference(array([0.0, 1.0]), array([-0.0, 1.0]))
    assert (found.equal_bits, found.ulp_max, found.relative_rmse) == (0.5, 0.0, 0.0)


def test_numbers_of_one_ulp() -> None:
    b = array([1.0, 2.0, 4.0, 8.0])
    a = b.copy()
    a[3] = np.nextafter(a[3], np.float32(9))
    found = difference(a, b)
    gap = 8 * 2.0**-23
    assert (found.equal_bits, found.largest) == (0.75, gap)
    assert (found.ulp_max, found.ulp_mean, found.ulp_p99) == (1.0, 0.25, 1.0)
    assert found.relative_rmse == pytest.approx(gap / math.sqrt(85))
    assert found.snr_db == pytest.approx(20 * math.log10(math.sqrt(85) / gap))


def test_the_coarser_dtype_gives_the_ulp() -> None:
    a = array([1.0 + 2.0**-7, 3.0], ml_dtypes.bfloat16)
    b = array([1.0, 3.0])
    found = difference(a, b)
    assert (found.ulp_max, found.equal_bits) == (1.0, 0.5)


def test_one_nan_is_infinitely_far() -> None:
    found = difference(array([math.nan, 1.0]), array([1.0, 1.0]))
    assert (found.largest, found.ulp_max, found.relative_rmse) == (math.inf,) * 3
    assert found.snr_db == -math.inf


def test_a_number_beside_zero_is_finitely_far() -> None:
    found = difference(array([1e30, 1.0]), array([0.0, 1.0]))
    assert found.ulp_max == np.float32(np.array(1e30, np.float32).view(np.int32))
    assert found.largest == pytest.approx(1e30)
    assert found.relative_rmse == pytest.approx(1e30)


def test_a_zero_side_has_no_angle() -> None:
    assert difference(array([0.0, 0.0]), array([1.0, 1.0])).cosine is None


def test_cosine() -> None:
    assert difference(array([1.0, 0.0]), array([1.0, 1.0])).cosine == pytest.approx(math.sqrt(0.5))


def test_integers_and_complex() -> None:
    found = difference(array([1, 5], np.int64), array([1, 2], np.int64))
    assert found.metrics() == {"equal_bits": 0.5, "largest": 3.0}
    found = difference(array([1 + 1j, 2], np.complex128), array([1 + 1j, 2 + 2j], np.complex128))
    assert (found.equal_bits, found.largest) == (0.5, 2.0)


def test_percentile_of_many() -> None:
    b = np.ones(1000, np.float32)
    a = b.copy()
    a[:20] = 1 + 3 * 2.0**-23
    found = difference(a, b)
    assert (found.ulp_p99, found.ulp_max, found.ulp_mean) == (3.0, 3.0, 0.06)


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match="shape"):
        difference(np.ones(2), np.ones(3))
