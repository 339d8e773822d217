from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.arrays import BLOCK
from pytest_probe.numerics.closeness import (
    distance,
    equal_in_float64,
    is_reference_array,
    near,
    reference_array,
    same_bytes,
)
from pytest_probe.numerics.dtypes import numpy_dtype

BF16 = numpy_dtype("bfloat16")


@pytest.mark.parametrize("size", [3, 5000])
def test_same_bytes(size: int) -> None:
    array = np.arange(size, dtype=np.float32)
    array[1] = np.nan
    assert same_bytes(array, array.copy())
    assert not same_bytes(array, array.astype(np.float64))
    assert not same_bytes(array, array[:-1])
    other = array.copy()
    other[0] = -0.0
    assert not same_bytes(array, other)
    assert same_bytes(array[::2], array[::2].copy())
    assert same_bytes(array.astype(BF16), array.astype(BF16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex128", "float64"])
@pytest.mark.parametrize("place", [0, BLOCK, 100_002])
def test_one_element_of_many_is_another(dtype: str, place: int) -> None:
    array = np.zeros(100_003, numpy_dtype(dtype))
    other = array.copy()
    assert same_bytes(array, other)
    other[place] = 1
    assert not same_bytes(array, other)
    # Every second of twice as many.
    wide = np.zeros((100_003, 2), array.dtype)
    wide[:, 0] = other
    assert same_bytes(wide[:, 0], other)
    assert not same_bytes(wide[:, 0], array)
    if dtype != "bool":
        assert near(array, array.copy())
        assert not near(array, other)
        assert distance({"a": other}, {"a": array.astype(reference_array(array).dtype)}) == pytest.approx(1)
    assert is_reference_array(reference_array(other), other)
    assert not is_reference_array(reference_array(array), other)
    assert not is_reference_array(reference_array(other)[1:], other)
    assert is_reference_array(other, other) is (dtype in ("bool", "complex128", "float64"))


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ({"a": np.array([1.0, 2.0])}, {"a": np.array([1.5, 1.0])}, 1.5 - 2.0**-52),
        ({"a": np.array([np.nan, np.inf])}, {"a": np.array([np.nan, np.inf])}, 0.0),
        ({"a": np.array([np.nan])}, {"a": np.array([1.0])}, np.inf),
        ({"a": np.array([1.0])}, {"a": np.array([1.0, 2.0])}, np.inf),
        ({"a": np.array([True, True])}, {"a": np.array([True, False])}, 1.0),
        ({"a": 1.0, "b": "x"}, {"a": 3.0, "b": "y"}, 2.0 - 2.0**-52),
        ({"a": np.array([1.0])}, {"b": np.array([2.0])}, 0.0),
        ({"a": np.array([1 + 1j])}, {"a": np.array([4 + 5j])}, 5.0 - 2.0**-51),
        ({"a": np.ones(2, np.float16)}, {"a": np.array([1 + 2.0**-11, 1 + 2.0**-10])}, 2.0**-11),
    ],
)
def test_distance(first: Any, second: Any, apart: float) -> None:
    assert distance(first, second) == apart


def test_near_is_beyond_the_reach_of_16_bit_rounding() -> None:
    values = np.array([1000.0, 1.0, np.nan, np.inf], np.float32)
    for by, same in ((0.5, True), (2.0, False)):
        other = values + np.float32(by * 1000 * 2.0**-18) * np.array([0, 1, 0, 0], np.float32)
        assert near(values, other) is same
    assert not near(values, values.astype(np.float64))
    assert not near(values, values[:-1])
    assert not near(values, np.where(np.isnan(values), np.float32(0), values))


def test_float64_agrees_but_for_its_own_rounding() -> None:
    values = np.array([1.0, 1e6, np.nan])
    assert equal_in_float64(values, values * (1 + 1e-10))
    assert not equal_in_float64(values, values * (1 + 1e-8))


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        ("bfloat16", "float64"),
        ("float64", "float64"),
        ("complex64", "complex128"),
        ("int32", "int32"),
        ("bool", "bool"),
    ],
)
def test_the_reference_takes_floats_as_float64(dtype: str, wide: str) -> None:
    array = np.ones(2, numpy_dtype(dtype))
    found = reference_array(array)
    assert found.dtype == np.dtype(wide)
    assert (found is array) == (dtype == wide)
