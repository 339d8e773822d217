"""What the plots of an output draw."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.error_plots import (
    _COLUMNS,
    _ROWS,
    COUNTED,
    LETTERS,
    Histogram,
    error_map,
    errors_of,
    histogram,
    points,
    sample,
)


def test_errors() -> None:
    ulps = errors_of(np.array([1 + 2.0**-22, 2.0], dtype=np.float32), np.array([1.0, 2.0]))
    assert ulps.tolist() == [2.0, 0.0]
    assert errors_of(np.array([7, 2]), np.array([4, 2])).tolist() == [3.0, 0.0]
    assert errors_of(np.array([True, False]), np.array([False, False])).tolist() == [1.0, 0.0]


def test_points_begin_with_the_worst() -> None:
    expected = np.arange(100.0)
    actual = expected.copy()
    actual[[17, 60]] += [0.5, 8.0]
    found = points(actual, expected, np.abs(actual - expected))
    assert found.worst == 12
    assert (found.expected[:2], found.more[:2]) == ((60.0, 17.0), (8.0, 0.5))
    assert len(found.expected) == 12 + 36


def test_points_leave_out_what_is_not_finite() -> None:
    expected, actual = np.array([1.0, 2.0, np.nan]), np.array([np.inf, 2.0, np.nan])
    found = points(actual, expected, errors_of(actual, expected))
    assert (set(found.expected), found.worst) == ({2.0}, 1)


def test_points_of_the_largest_numbers_stay_finite() -> None:
    largest = np.finfo(np.float64).max
    expected, actual = np.array([largest, -largest, 1.0]), np.array([largest, largest, 1.0])
    with np.errstate(over="ignore"):
        found = points(actual, expected, errors_of(actual, expected))
    assert (set(found.expected), set(found.more)) == ({largest, 1.0}, {0.0})


def test_points_of_complex_numbers_are_moduli() -> None:
    values = np.array([3 + 4j, 1.0], dtype=np.complex64)
    found = points(values, values.astype(np.complex128), np.zeros(2))
    assert set(found.expected) == {5.0, 1.0}


def test_a_map_of_the_slice_that_holds_the_worst() -> None:
    expected = np.ones((3, 4, 6))
    actual = expected.astype(np.float32)
    actual[1, 2, 5] += 2.0**-20
    found = error_map(actual, expected, (1, 2, 5))
    assert (found.index, found.extents, found.columns) == ((1,), (4, 6), 6)
    # 8 ULP lie from 2**3 on, the twelfth power from 2**-8.
    assert found.cells == "0" * 17 + LETTERS[12] + "0" * 6


def test_a_large_slice_is_made_small() -> None:
    expected = np.ones((2000, 3000))
    actual = expected.astype(np.float32)
    actual[1999, 1] = np.nan
    found = error_map(actual, expected, (1999, 1))
    assert (len(found.cells), found.columns) == (_ROWS * _COLUMNS, _COLUMNS)
    assert found.cells.index(LETTERS[-1]) == (_ROWS - 1) * _COLUMNS


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 1), (5, 3), (2, 1, 90), (60, 2)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    values = np.ones(shape, dtype=np.float32)
    found = error_map(values, values.astype(np.float64), (0,) * len(shape))
    assert set(found.cells) == {"0"}
    assert len(found.cells) % found.columns == 0


@given(st.integers(0, 2**32), st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16]), st.integers(1, 4000))
def test_the_worst_cell_is_that_of_the_worst_element(seed: int, dtype: type, size: int) -> None:
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal((size % 50 + 1, size % 70 + 1))
    actual: AnyArray = (expected * (1 + 1e-2 * rng.standard_normal(expected.shape))).astype(dtype)
    errors = errors_of(actual, expected)
    worst = np.unravel_index(int(np.argmax(errors)), errors.shape)
    found = error_map(actual, expected, (int(worst[0]), int(worst[1])))
    level = 0 if errors.max() == 0 else min(62, max(1, int(np.frexp(errors.max())[1]) + 8))
    assert max(map(LETTERS.index, found.cells)) == level


def test_samples_are_evenly_spaced() -> None:
    values = np.arange(200_000.0)
    taken, _ = sample(values, values)
    assert taken[1] - taken[0] == 4
    assert taken.size == 50_000


def test_powers_of_two() -> None:
    values = np.array([0.5, 0.75, 1.0, 1.999, 2.0, 5.0])
    assert histogram(values) == Histogram(-1, (2, 2, 1, 1), 0, 0)


def test_what_lies_beyond() -> None:
    values = np.array([[0.0, 1e-9, 3.0], [np.inf, np.nan, 1e30]])
    assert histogram(values) == Histogram(1, (1,), 2, 3)


def test_nothing() -> None:
    assert histogram(np.zeros(3)) == Histogram(0, (), 3, 0)
    assert histogram(np.empty(0)) == Histogram(0, (), 0, 0)


def test_of_many_the_largest_counts_too() -> None:
    values = np.ones(3 * COUNTED + 1)
    values[1] = 1024.0
    found = histogram(values)
    assert (found.step, found.first, found.counts[-1]) == (4, 0, 1)
    assert sum(found.counts) == -(-values.size // 4) + 1
    values[2] = np.nan
    assert histogram(values).large == 1


@given(arrays.arrays(np.float64, st.integers(0, 60), elements=st.floats(0) | st.just(np.nan)))
def test_every_value_counts_once(values: np.ndarray) -> None:
    found = histogram(values)
    assert sum(found.counts) + found.small + found.large == values.size
    for place, number in enumerate(found.counts):
        low = 2.0 ** (found.first + place)
        assert number == np.count_nonzero((values >= max(low, 2.0**-16)) & (values < 2 * low))
