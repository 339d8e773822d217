from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.numerics.dtypes import numpy_dtype, round_to, ulp_distance, widen
from pytest_probe.numerics.metrics import describe, relative_rmse, rescaled, worst

ZERO = {"max_abs": 0.0, "max_rel": 0.0, "max_ulp": 0.0, "mean_ulp": 0.0, "mismatch": 0.0, "nonfinite_mismatch": 0}
INF = math.inf


def test_exact_numbers() -> None:
    actual = np.array([1 + 2**-23, 2.0, 4.0, 0.5], dtype=np.float32)
    expected = np.array([1.0, 2.0, 5.0, 0.0])
    assert describe(actual, expected) == {
        "max_abs": 1.0,
        "max_rel": 0.2,
        "max_ulp": 2.0**148,
        "mean_ulp": (1 + 2**21 + 2.0**148) / 4,
        "mismatch": 0.75,
        "nonfinite_mismatch": 0,
    }


def test_a_rounded_reference_has_no_mismatch() -> None:
    expected = np.array([1 + 2**-8, 1 + 3 * 2**-8 - 2**-40, 2.0**-135, 3.4e38, 1e300, -0.0])
    actual = round_to(expected, "bfloat16")
    assert widen(actual).tolist() == [1.0, 1 + 2**-7, 0.0, INF, INF, 0.0]
    assert describe(actual, expected) == {
        "max_abs": 2**-8,
        "max_rel": 1.0,
        "max_ulp": 0.5,
        "mean_ulp": (0.5 + (0.5 - 2**-33) + 0.25) / 6,
        "mismatch": 0.0,
        "nonfinite_mismatch": 0,
    }


@pytest.mark.parametrize("rounded_down", [True, False])
def test_mismatch_at_a_power_of_two_counts_the_shorter_step_below(rounded_down: bool) -> None:
    actual = np.array([1 - 2**-24 if rounded_down else 1.0], dtype=np.float32)
    metrics = describe(actual, np.array([1.0]))
    assert (metrics["max_ulp"], metrics["mismatch"]) == ((0.5, 1.0) if rounded_down else (0.0, 0.0))


@pytest.mark.parametrize(
    ("name", "actual", "expected", "alike"),
    [
        ("float32", math.nan, math.nan, True),
        ("float32", INF, INF, True),
        ("float32", INF, 1e39, True),
        ("float8_e4m3fn", math.nan, 1e3, True),
        ("float32", math.nan, 0.0, False),
        ("float32", math.nan, 1.0, False),
        ("float32", 1.0, math.nan, False),
        ("float32", 1.0, INF, False),
        ("float32", -INF, INF, False),
        ("float32", INF, 1.0, False),
        ("float32", math.nan, INF, False),
    ],
)
def test_nan_and_inf(name: str, actual: float, expected: float, alike: bool) -> None:
    values = np.array([1.0, actual]).astype(numpy_dtype(name))
    metrics = describe(values, np.array([1.0, expected]))
    if alike:
        assert metrics == ZERO
    else:
        assert metrics == {
            "max_abs": INF,
            "max_rel": INF,
            "max_ulp": INF,
            "mean_ulp": INF,
            "mismatch": 0.5,
            "nonfinite_mismatch": 1,
        }


def test_inf_where_the_reference_rounds_to_the_largest_finite_number_is_no_error_but_a_mismatch() -> None:
    metrics = describe(np.array([INF], dtype=np.float16), np.array([65505.0]))
    assert metrics == {**ZERO, "mismatch": 1.0}


def test_finite_values_too_far_apart_for_float64_are_no_nonfinite_mismatch() -> None:
    metrics = describe(np.array([1.7e308]), np.array([-1.7e308]))
    assert (metrics["max_abs"], metrics["nonfinite_mismatch"]) == (INF, 0)


def test_complex_by_modulus_and_ulp_by_part() -> None:
    actual = np.array([3 + 4j, 1 + 1j], dtype=np.complex64)
    expected = np.array([0j, 1 + (1 + 2**-23) * 1j])
    assert describe(actual[:1], expected[:1]) == {
        "max_abs": 5.0,
        "max_rel": 0.0,
        "max_ulp": 4 * 2.0**149,
        "mean_ulp": 4 * 2.0**149,
        "mismatch": 1.0,
        "nonfinite_mismatch": 0,
    }
    metrics = describe(actual[1:], expected[1:])
    assert (metrics["max_abs"], metrics["max_ulp"], metrics["mismatch"]) == (2**-23, 1.0, 1.0)
    assert metrics["max_rel"] == pytest.approx(2**-23.5)


def test_a_complex_nan_counts_once() -> None:
    actual = np.array([complex(math.nan, math.nan), 1], dtype=np.complex64)
    metrics = describe(actual, np.array([1 + 1j, 1]))
    assert (metrics["nonfinite_mismatch"], metrics["mismatch"], metrics["max_rel"]) == (1, 0.5, INF)


@pytest.mark.parametrize(
    ("dtype", "actual", "expected", "largest", "mismatch"),
    [
        ("int32", [1, 2, 3, 4], [1, 2, 3, 9], 5, 0.25),
        ("uint8", [0, 255], [255, 255], 255, 0.5),
        ("int8", [-128, 0], [127, 0], 255, 0.5),
        ("int64", [2**62 + 1, -(2**63)], [2**62, 2**63 - 1], 2**64 - 1, 1.0),
        ("int64", [2**62 + 1], [2**62], 1, 1.0),
        ("uint64", [2**64 - 1], [0], 2**64 - 1, 1.0),
        ("bool", [True, False], [True, True], 1, 0.5),
        ("bool", [True, False], [True, False], 0, 0.0),
    ],
)
def test_integers_and_bool_are_exact(
    dtype: str, actual: list[int], expected: list[int], largest: int, mismatch: float
) -> None:
    metrics = describe(np.array(actual, dtype=dtype), np.array(expected, dtype=dtype))
    assert metrics == {"max_abs": largest, "mismatch": mismatch}
    assert type(metrics["max_abs"]) is int


def test_integers_against_a_float64_reference() -> None:
    actual = np.array([1, 2, 3])
    assert describe(actual, np.array([1.0, 2.5, 3.0])) == {"max_abs": 0.5, "mismatch": 1 / 3}
    assert describe(actual, np.array([1.0, math.nan, 3.0])) == {"max_abs": INF, "mismatch": 1 / 3}


def test_empty_and_without_dimensions() -> None:
    for dtype in ("bfloat16", "complex64"):
        assert describe(np.empty((3, 0, 2), numpy_dtype(dtype)), np.empty((3, 0, 2))) == ZERO
    assert describe(np.empty(0, np.int32), np.empty(0, np.int32)) == {"max_abs": 0, "mismatch": 0.0}
    assert describe(np.array(2.5, dtype=numpy_dtype("bfloat16")), np.array(2.0))["max_rel"] == 0.25


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match=r"actual has shape \(2, 1\), expected \(1, 2\)"):
        describe(np.zeros((2, 1)), np.zeros((1, 2)))


def test_values_are_builtins() -> None:
    for values in (
        np.ones(3, np.float32),
        np.ones(3, np.complex64),
        np.ones(3, bool),
        np.ones(0, numpy_dtype("bfloat16")),
    ):
        assert {type(value) for value in describe(values, values).values()} <= {int, float}


@pytest.mark.filterwarnings("error")
def test_no_warnings() -> None:
    values = np.array([math.nan, INF, -INF, 0.0, 3e38], dtype=np.float32)
    with np.errstate(all="warn"):
        describe(values, values[::-1].astype(np.float64))
        describe(values + 0j, values[::-1].astype(np.complex128))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_many_blocks_and_strides_give_the_numbers_of_the_whole(dtype: str) -> None:
    expected = np.random.default_rng(0).normal(size=(300, 200))
    actual = round_to(expected * (1 + 2.0**-9), dtype)
    for left, right in (
        (actual, expected),
        (actual.T, expected.T),
        (actual[::-2, 1::3], expected[::-2, 1::3]),
        (np.asfortranarray(actual), expected),
    ):
        wide = widen(left)
        gap, ulps = np.abs(wide - right), ulp_distance(left, right, dtype)
        assert describe(left, right) == {
            "max_abs": gap.max(),
            "max_rel": (gap / np.abs(right)).max(),
            "max_ulp": ulps.max(),
            "mean_ulp": pytest.approx(ulps.mean(), rel=1e-12),
            "mismatch": np.mean(wide != widen(round_to(right, dtype))),
            "nonfinite_mismatch": 0,
        }


def test_memory_does_not_grow_with_the_arrays() -> None:
    expected = np.ones((1000, 2000))
    actual = np.ones((2000, 1000), dtype=np.float32).T
    tracemalloc.start()
    try:
        describe(actual, expected)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < expected.nbytes / 4


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        ([1.0, 5.0], 5, ((1,), (0,))),
        ([1.0, math.nan, INF, math.nan], 3, ((1,), (3,), (2,))),
        ([[0.0, 1.0], [3.0, 2.0]], 3, ((1, 0), (1, 1), (0, 1))),
        (4.0, 5, ((),)),
        ([], 5, ()),
        ([1.0], 0, ()),
        ([False, True], 1, ((1,),)),
    ],
)
def test_worst(scores: object, k: int, expected: tuple[tuple[int, ...], ...]) -> None:
    assert worst(np.array(scores), k) == expected


def test_worst_of_a_strided_view_has_the_views_indices() -> None:
    scores = np.arange(12.0).reshape(3, 4).T
    found = worst(scores, 2)
    assert found == ((3, 2), (2, 2))
    assert {type(axis) for index in found for axis in index} == {int}


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, INF, math.nan]), max_size=30), st.integers(0, 8))
def test_worst_is_the_head_of_a_full_sort(scores: list[float], k: int) -> None:
    order = sorted(range(len(scores)), key=lambda index: (not math.isnan(scores[index]), -scores[index], index))
    assert worst(np.array(scores), k) == tuple((index,) for index in order[:k])


NAN = math.nan


@pytest.mark.parametrize(
    ("actual", "expected", "value", "carriers"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 625 / 337),
        ([4.0, 3.0], [3.0, 4.0], math.sqrt(2) / 5, 625 / 337),
        ([0.0, 0.0], [0.0, 0.0], 0.0, 0.0),
        ([0.0, 1e-30], [0.0, 0.0], INF, 0.0),
        ([NAN, INF, 2.0], [NAN, INF, 1.0], 1.0, 1.0),
        ([], [], 0.0, 0.0),
        ([1e300, 1e300], [1e300, -1e300], math.sqrt(2), 2.0),
        ([1e-310, 0.0], [2e-310, 0.0], 0.5, 1.0),
        ([1.0, 1.0], [1e-200, 1e-200], INF, 2.0),
        ([1 + 1j], [1.0], 1.0, 1.0),
        ([1.0] * 7, [2.0] * 7, 0.5, 7.0),
    ],
)
def test_values(actual: list[complex], expected: list[complex], value: float, carriers: float) -> None:
    found = relative_rmse(np.array(actual), np.array(expected))
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.carriers == pytest.approx(carriers, rel=1e-12)


def test_more_than_one_block() -> None:
    expected = np.ones((3, 10_000))
    actual = (expected * 1.5).astype(np.float32)
    assert relative_rmse(actual, expected) == (0.5, 30_000)
    assert relative_rmse(actual[:, ::2], expected[:, ::2]) == (0.5, 15_000)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.integers(-900, 900))
def test_a_scale_changes_nothing(values: list[float], power: int) -> None:
    expected = np.array(values)
    actual = expected + 0.25 * np.abs(expected).max()
    found = relative_rmse(actual, expected)
    scaled = relative_rmse(np.ldexp(actual, power), np.ldexp(expected, power))
    if np.abs(expected).max() > 1e-30:
        assert scaled.value == pytest.approx(found.value)
        assert scaled.carriers == pytest.approx(found.carriers)
    assert not math.isnan(found.value)


def test_the_angle_of_subnormal_numbers_is_measured() -> None:
    values = np.array([5e-324, 1e-323])
    assert rescaled(values, values, 2).distance() == 0.0
