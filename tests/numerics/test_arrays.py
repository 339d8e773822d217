from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics import allowed_scale, arrays, noise_ratio
from pytest_probe.numerics.arrays import (
    BLOCK,
    PASS,
    contiguous,
    distance,
    equal_in_float64,
    in_blocks,
    is_reference_array,
    laid_out,
    layout,
    near,
    reference_array,
    same_bytes,
    untied,
)
from pytest_probe.numerics.dtypes import numpy_dtype

X = np.arange(6.0).reshape(2, 3)
FIXED = X.copy()
FIXED.flags.writeable = False


def test_what_lies_in_order_is_itself() -> None:
    assert contiguous(X) is X


@pytest.mark.parametrize("array", [X[:, ::-1], X.T, X[:1][::-1], X[:, ::2], FIXED])
def test_what_does_not_or_is_fixed_is_copied(array: np.ndarray) -> None:
    copied = contiguous(array)
    assert not np.shares_memory(copied, array)
    assert copied.flags.carray
    assert min(copied.strides) >= 0
    assert copied.tolist() == array.tolist()


RANDOM = np.random.default_rng(0)
SHAPE = (3, PASS // 2 + 5, 2)
WIDE = RANDOM.standard_normal(SHAPE) * np.exp(RANDOM.uniform(-40, 40, SHAPE))
SPECIAL = np.where(RANDOM.random(SHAPE) < 0.1, RANDOM.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300], SHAPE), WIDE)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_computed_in_blocks(turned: bool) -> None:
    first, second = (array.transpose(2, 0, 1) if turned else array for array in (WIDE, WIDE[::-1]))
    pieces = []

    def compute(one: Any, other: Any) -> Any:
        pieces.append(one.size)
        return np.sqrt(np.abs(one)) - other

    found = in_blocks(compute, first, second)
    assert found.shape == first.shape
    assert found.tobytes() == (np.sqrt(np.abs(first)) - second).tobytes()
    assert max(pieces) == PASS
    assert sum(pieces) == first.size


@pytest.mark.parametrize("still", [np.inf, 0.25 * 2.0**-24], ids=["alike", "still"])
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (WIDE, "float32"),
        (SPECIAL, "float32"),
        (SPECIAL, "bfloat16"),
        (SPECIAL, "float8_e4m3fn"),
        (WIDE + 1j * WIDE[::-1], "complex64"),
    ],
    ids=["finite", "special", "bfloat16", "float8", "complex"],
)
def test_noise_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch, values: Any, dtype: str, still: float) -> None:
    """Also where runs disagree on finiteness, and beyond the range of a dtype."""
    actual = values * (1 + RANDOM.uniform(-1, 1, SHAPE) * 2.0**-23)
    runs = [values * (1 + RANDOM.uniform(-1, 1, SHAPE) * 2.0**-24) for _ in range(2)]
    runs[0].reshape(-1)[::97] = np.inf
    found = []
    for size in (PASS, 10**9):
        monkeypatch.setattr(arrays, "PASS", size)
        with np.errstate(all="ignore"):
            spread = allowed_scale.spread_of(runs, values, dtype)
            noise = noise_ratio.measure_noise(
                actual, values, spread, dtype=dtype, roundoff=2.0**-24, share=2.0**-25, still=still
            )
        assert spread is not None
        found.append((spread.size.tobytes(), noise.ratios.tobytes(), repr(noise)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("strides", "offset"),
    [(None, 0), ((0, 0), 0), ((1, 2), 0), ((3, 1), 3), (None, 1), ((7, 2), 2), ((0, 1), 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "complex64"])
def test_an_array_lies_as_it_is_laid_out(strides: tuple[int, ...] | None, offset: int, dtype: str) -> None:
    values = X[:1] if strides and strides[0] == 0 else X
    values = np.broadcast_to(values[:, :1] if strides == (0, 0) else values, (2, 3))
    made = laid_out(values, numpy_dtype(dtype), strides, offset)
    assert made.dtype == numpy_dtype(dtype)
    assert np.array_equal(made.astype(np.float64 if dtype != "complex64" else np.complex128), values)
    kept = None if strides == (3, 1) else strides
    assert layout(made) == (kept, offset % (16 // made.itemsize))


def test_no_dimensions_and_no_elements_lie_in_order() -> None:
    for array in (np.array(1.5), np.empty((0, 3))):
        assert layout(laid_out(array, array.dtype, None, 0)) == (None, 0)


def test_what_runs_backwards_counts_as_in_order() -> None:
    assert layout(X[:, ::-1])[0] is None


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


@pytest.mark.parametrize(("telling", "count"), [(1, 1), (2, 2), (3, 4), (4, 4), (8, 8), (100, 8)])
def test_distance_of_some_elements(monkeypatch: pytest.MonkeyPatch, telling: int, count: int) -> None:
    monkeypatch.setattr(arrays, "TELLING", telling)
    for values in (np.arange(8.0), np.arange(8.0).reshape(2, 4).T):
        assert distance({"a": values}, {"a": values + 1}) == pytest.approx(count)


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


def test_zeros_that_move_by_less_than_any_rounding() -> None:
    array = np.array([0.0, -0.5, -0.0, 4.0], np.float32)
    tiny = 0.5 * 2.0**-80
    np.testing.assert_array_equal(untied(array), [tiny, -0.5, tiny, 4.0])
    np.testing.assert_array_equal(untied(array, np.array([1.5, 1.0, 0.5, 1.0])), [1.5 * tiny, -0.5, 0.5 * tiny, 4.0])
    np.testing.assert_array_equal(untied(np.arange(3)), np.arange(3))
