"""Values that have the statistics of a record."""

from __future__ import annotations

import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.inputs import recorded_statistics
from pytest_probe.inputs.draws import round_to_dtype
from pytest_probe.inputs.generated import generate
from pytest_probe.inputs.recorded_statistics import Statistics
from pytest_probe.model.dump import TensorSpec


def statistics_of(values: np.ndarray) -> Statistics:
    return Statistics(values.min(), values.max(), values.mean(), float(np.linalg.norm(values)))


def softmax(rng: np.random.Generator, count: int) -> np.ndarray:
    scores = np.exp(rng.standard_normal((count // 64, 64)))
    return (scores / scores.sum(axis=1, keepdims=True)).reshape(-1)


DATA = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "relu": lambda rng, count: np.maximum(rng.standard_normal(count), 0),
    "mask": lambda rng, count: (rng.random(count) < 0.3).astype(float),
    "additive mask": lambda rng, count: np.where(rng.random(count) < 0.3, -1e9, 0.0),
    "softmax": softmax,
    "near one": lambda rng, count: 1 + 0.02 * rng.standard_normal(count),
    "uniform": lambda rng, count: rng.random(count),
    "lognormal": lambda rng, count: np.exp(rng.standard_normal(count)),
    "student": lambda rng, count: rng.standard_t(3, count),
}


@pytest.mark.parametrize("law", DATA)
@pytest.mark.parametrize("count", [64, 512, 1984, 50_048])
def test_all_four_statistics_are_met_within_one_percent(law: str, count: int) -> None:
    for seed in range(10 if count < 10_000 else 2):
        wanted = statistics_of(DATA[law](np.random.default_rng(seed), count))
        made = statistics_of(recorded_statistics.floats(np.random.default_rng(seed + 100), count, wanted))
        assert (made.low, made.high) == (wanted.low, wanted.high)
        assert made.mean == pytest.approx(wanted.mean, rel=0.01)
        assert made.norm == pytest.approx(wanted.norm, rel=0.01)


def test_a_mask_gets_exactly_as_many_ones_as_its_mean_says() -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 1000, Statistics(0.0, 1.0, 0.123, 123**0.5))
    assert np.count_nonzero(made == 1.0) == 123
    assert np.count_nonzero(made == 0.0) == 877


def test_extremes_stand_at_random_places() -> None:
    wanted = Statistics(-3.0, 3.0, 0.0, 8.0)
    places = [recorded_statistics.floats(np.random.default_rng(seed), 64, wanted).argmax() for seed in range(60)]
    assert len(set(places)) > 25
    small = [recorded_statistics.floats(np.random.default_rng(seed), 2, wanted).tolist() for seed in range(20)]
    assert {tuple(pair) for pair in small} == {(-3.0, 3.0), (3.0, -3.0)}


def test_one_element_is_the_maximum_and_a_constant_is_constant() -> None:
    assert recorded_statistics.floats(np.random.default_rng(0), 1, Statistics(-1.0, 2.0)).tolist() == [2.0]
    assert recorded_statistics.floats(np.random.default_rng(0), 3, Statistics(0.1, 0.1)).tolist() == [0.1, 0.1, 0.1]
    assert recorded_statistics.floats(np.random.default_rng(0), 0, Statistics(0.0, 0.0)).shape == (0,)


def test_three_elements_are_what_the_statistics_leave() -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 3, statistics_of(np.array([-1.0, 0.25, 2.0])))
    assert sorted(made.tolist()) == pytest.approx([-1.0, 0.25, 2.0], abs=1e-12)


@pytest.mark.parametrize(
    ("mean", "norm"),
    [(0.5, 1e-3), (0.5, 1e30), (-7.0, 3.0), (99.0, 3.0), (0.0, None), (None, None), (1e-3, 0.0)],
)
def test_contradictory_statistics_still_give_numbers_in_range(mean: float | None, norm: float | None) -> None:
    made = recorded_statistics.floats(np.random.default_rng(0), 100, Statistics(-1.0, 1.0, mean, norm))
    assert (made.min(), made.max()) == (-1.0, 1.0)
    assert np.isfinite(made).all()


def test_coarse_statistics_of_narrow_data_keep_a_spread() -> None:
    # bfloat16 weights about one: mean and norm are rounded so coarsely that the variance comes out as anything.
    made = recorded_statistics.floats(np.random.default_rng(0), 256, Statistics(0.945, 1.055, 1.0, 16.0, error=2.0**-8))
    assert 0.01 < made.std() < 0.03


def test_the_whole_float64_range_does_not_overflow() -> None:
    largest = float(np.finfo(np.float64).max)
    made = recorded_statistics.floats(np.random.default_rng(0), 100, Statistics(-largest, largest, 0.0, None))
    assert np.isfinite(made).all()
    assert (made.min(), made.max()) == (-largest, largest)


def test_integers_hold_both_ends_and_are_exact_beyond_2_to_53() -> None:
    low, high = 2**62 + 1, 2**62 + 3
    made = recorded_statistics.integers(np.random.default_rng(0), 50, low, high)
    assert set(made.tolist()) == {low, low + 1, high}
    assert set(recorded_statistics.integers(np.random.default_rng(0), 2, 0, 1000).tolist()) == {0, 1000}
    assert recorded_statistics.integers(np.random.default_rng(0), 9, 0, 2**64 - 1).dtype == np.uint64


def test_what_piles_up_at_the_minimum_is_the_minimum() -> None:
    """A Beta law of a small exponent would give 1e-29 beside 1, whose square is no float32."""
    wanted = recorded_statistics.Statistics(0.0, 32.0, 0.56, 280.0)
    values = recorded_statistics.floats(np.random.default_rng(0), 10_000, wanted)
    assert values[values > 0].min() >= 32 * 2.0**-48
    assert (values == 0).sum() > 1


INF, NAN = math.inf, math.nan


def made(dtype: str, shape: tuple[int, ...], *extremes: Any, seed: int = 0, **others: Any) -> np.ndarray:
    spec = TensorSpec(dtype, shape, *extremes, **others)
    return round_to_dtype(generate(spec, np.random.default_rng(seed)), dtype)


@pytest.mark.parametrize(
    ("dtype", "shape", "extremes", "told", "counts"),
    [
        # NaN, inf and -inf: one where none was counted, +inf where NaN hides the sign, both alike as extremes.
        ("float32", (50,), (NAN, NAN, NAN, NAN), {}, (1, 0, 0)),
        ("float32", (50,), (NAN, NAN, NAN, NAN), {"high": 2.0, "low": -1.0}, (1, 0, 0)),
        ("float32", (50,), (NAN, NAN, NAN, NAN), {"high": NAN, "low": NAN}, (50, 0, 0)),
        ("float32", (50,), (INF, -INF, NAN, INF), {"high": 4.0, "low": -4.0}, (0, 1, 1)),
        ("float32", (50,), (INF, 1.0, INF, INF), {}, (0, 1, 0)),
        ("float32", (5,), (INF, INF, INF, INF), {}, (0, 5, 0)),
        ("float32", (), (NAN, NAN, NAN, NAN), {}, (1, 0, 0)),
        ("float32", (3,), (NAN, NAN), {"nan": 10, "inf": 10}, (3, 0, 0)),
        ("float32", (10, 10), (NAN, NAN), {"high": 2.0, "low": -2.0, "nan": 7, "inf": 0}, (7, 0, 0)),
        ("bfloat16", (10, 10), (NAN, NAN), {"high": 2.0, "low": -2.0, "nan": 3, "inf": 5}, (3, 5, 0)),
        ("float32", (10, 10), (INF, -1.0), {"high": 2.0, "low": -2.0, "nan": 0, "inf": 9}, (0, 9, 0)),
        ("bfloat16", (10, 10), (INF, -INF), {"high": 2.0, "low": -2.0, "nan": 0, "inf": 6}, (0, 3, 3)),
        ("float32", (10, 10), (3.0, -INF), {"high": 2.0, "low": -2.0, "nan": 0, "inf": 30}, (0, 0, 30)),
        ("float32", (10, 10), (NAN, NAN), {"high": 2.0, "low": -2.0, "nan": 3, "inf": 9, "negative_inf": 7}, (3, 2, 7)),
        ("complex64", (10, 10), (NAN, NAN), {"high": 2.0, "low": 0.5, "nan": 4, "inf": 2}, (4, 2, 0)),
        ("complex64", (9,), (INF, 0.0), {}, (0, 1, 0)),
    ],
)
def test_as_many_nan_and_inf_as_were_recorded(
    dtype: str, shape: tuple[int, ...], extremes: Any, told: Any, counts: Any
) -> None:
    array = generate(TensorSpec(dtype, shape, *extremes, **told), np.random.default_rng(0))
    infinite = np.isinf(array)
    negative = infinite & (np.sign(array.real) < 0)
    assert (np.isnan(array).sum(), (infinite & ~negative).sum(), negative.sum()) == counts
    finite = np.abs(array[np.isfinite(array)])
    if np.isfinite(told.get("high", NAN)):
        assert finite.max() <= max(told["high"], 3.0)
    elif "float32" in dtype and extremes[:2] == (INF, 1.0):
        assert finite.min() == 1.0


@pytest.mark.parametrize(
    ("dtype", "shape", "extremes", "low", "high"),
    [
        ("float32", (), (-2.5, -2.5, -2.5, -2.5), -2.5, -2.5),
        ("int64", (), (7, 7), 7, 7),
        ("bool", (), (True, True), True, True),
        ("int64", (500,), (2**60 + 5, 2**60), 2**60, 2**60 + 5),
        ("uint8", (500,), (255, 0), 0, 255),
        ("int32", (500,), (3, -7), -7, 3),
        ("uint64", (500,), (2**64 - 1, 0), 0, 2**64 - 1),
        ("int64", (20,), (2.0**63, 0.0), 0, 2**63 - 1),  # rounded, within the dtype
        ("int32", (100,), (), 0, 9),
        ("bool", (5,), (True, True), True, True),
        ("bool", (5,), (False, False), False, False),
    ],
)
def test_dtype_shape_and_ends_are_those_recorded(
    dtype: str, shape: tuple[int, ...], extremes: Any, low: int | float, high: int | float
) -> None:
    array = made(dtype, shape, *extremes)
    assert (array.dtype.name, array.shape, array.min(), array.max()) == (dtype, shape, low, high)
    assert made(dtype, (3, 0, 2)).shape == (3, 0, 2)


@pytest.mark.parametrize(("told", "count"), [((True, False), 50), ((), 50)])
def test_half_of_booleans_is_true_unless_they_were_counted(told: tuple[bool, ...], count: int) -> None:
    assert made("bool", (10, 10), *told).sum() == count
    assert made("bool", (10, 10), True, False, true=7).sum() == 7


def test_without_statistics_floats_are_standard_normal() -> None:
    array = made("float32", (100, 100))
    assert array.mean() == pytest.approx(0, abs=0.05)
    assert array.std() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_float8(dtype: str) -> None:
    array = made(dtype, (1000,), 3.5, -3.0, 0.0, 31.6).astype(np.float64)
    assert (array.max(), array.min()) == (3.5, -3.0)
    assert np.linalg.norm(array) == pytest.approx(31.6, rel=0.02)
    powers = np.log2(made("float8_e8m0fnu", (100,)).astype(np.float64))
    assert (powers == np.rint(powers)).all()


def test_an_overflowed_norm_of_float16_is_no_norm() -> None:
    array = made("float16", (1000,), 60000.0, -60000.0, 10.0, INF).astype(np.float64)
    assert np.isfinite(array).all()
    assert (array.max(), array.min()) == (60000.0, -60000.0)
    assert 5000 < array.std() < 30000


def test_beyond_the_dtype_comes_inf_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = generate(TensorSpec("float32", (100,), 1e6, -1e6, 0.0, 5e6), np.random.default_rng(0))
        narrow = round_to_dtype(values, "float16")
    assert np.isposinf(narrow).any()
    assert np.isneginf(narrow).any()


def test_an_attention_mask_leaves_no_row_without_a_finite_value() -> None:
    array = made("float32", (2, 8, 8), 0.0, -INF, -INF, INF)
    assert set(array.reshape(-1).tolist()) == {0.0, -INF}
    assert (array[..., 0] == 0.0).all()
    assert np.isneginf(array).sum() == 64


def test_masked_scores_have_their_maximum_and_spread() -> None:
    array = made("float32", (8, 16), 3.25, -INF, -INF, INF)
    finite = array[np.isfinite(array)]
    assert finite.max() == 3.25
    assert finite.std() > 0.3
    assert np.isneginf(array).sum() == 64
    assert np.isfinite(array[:, 0]).all()


def test_a_mask_of_the_lowest_finite_number_is_a_mask() -> None:
    lowest = float(ml_dtypes.finfo("bfloat16").min)
    array = made("bfloat16", (4, 1, 16, 16), 0.0, lowest, -INF, INF).astype(np.float64)
    assert set(array.reshape(-1).tolist()) == {0.0, lowest}
    assert (array[..., 0] == 0.0).all()
    quarter = made("float32", (64, 64), 0.0, -3.4e38, -0.85e38, INF)
    assert np.count_nonzero(quarter) == 1024


def test_complex_statistics_are_of_the_modulus() -> None:
    array = made("complex64", (1000,), 3.0, 0.5, 1.2)
    modulus = np.abs(array)
    assert array.dtype == np.complex64
    assert (modulus.max(), modulus.min()) == (pytest.approx(3.0, rel=1e-6), pytest.approx(0.5, rel=1e-6))
    assert modulus.mean() == pytest.approx(1.2, rel=0.01)
    assert abs(np.exp(1j * np.angle(array)).mean()) < 0.1
    assert made("complex128", (4,)).dtype == np.complex128
    assert abs(made("complex64", (), 2.0, 2.0).item()) == pytest.approx(2.0, rel=1e-6)


def generate_floats(true: np.ndarray, **told: Any) -> np.ndarray:
    """Generated values by the record of these ones."""
    spec = TensorSpec(
        "float32", true.shape, true.max(), true.min(), float(true.mean()), float(np.linalg.norm(true)), **told
    )
    values = generate(spec, np.random.default_rng(1))
    assert (values.max(), values.min()) == (true.max(), true.min())
    return values


def near(values: np.ndarray, true: np.ndarray) -> None:
    """Mean, beside the root mean square, and norm are those recorded."""
    norm = float(np.linalg.norm(true))
    assert abs(values.mean() - true.mean()) < 0.01 * norm / true.size**0.5
    assert np.linalg.norm(values) == pytest.approx(norm, rel=0.01)


def data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((64, 128))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("relu", [False, True])
def test_the_share_of_zeros(share: float, relu: bool) -> None:
    true = np.abs(data()) if relu else data()
    true[np.random.default_rng(2).random(true.shape) < share] = 0.0
    values = generate_floats(true, zeros=float((true == 0).mean()))
    assert np.count_nonzero(values == 0) == pytest.approx(np.count_nonzero(true == 0), abs=1)
    near(values, true)


def test_the_most_frequent_value() -> None:
    true = np.clip(data(), -3, 0.5)
    values = generate_floats(true, zeros=0.0, mode=(0.5, float((true == 0.5).mean())))
    assert np.count_nonzero(values == 0.5) == pytest.approx(np.count_nonzero(true == 0.5), abs=1)
    near(values, true)


def test_a_sampled_share_of_a_mask_gives_way_to_the_mean() -> None:
    true = (data() > 0.5).astype(float)
    values = generate_floats(true, zeros=0.66, mode=(1.0, 0.32))
    assert values.mean() == true.mean()
    assert set(np.unique(values).tolist()) == {0.0, 1.0}


def test_rows_of_one_value_are_whole_rows() -> None:
    true = data()
    true[40:] = 0.0
    values = generate_floats(true, zeros=24 / 64, constant_rows=(24 / 64, 0.0))
    assert (values == 0).all(axis=1).sum() == 24
    assert np.count_nonzero(values == 0) == 24 * 128
    near(values, true)


def test_rows_may_have_values_of_their_own() -> None:
    true = data()
    true[::2] = true[::2, :1]
    values = generate_floats(true, zeros=0.0, constant_rows=(0.5, None))
    rows = (values == values[:, :1]).all(axis=1)
    assert rows.sum() == 32
    assert np.unique(values[rows, 0]).size == 32
    near(values, true)
    # Every row may be constant.
    true = np.repeat(data()[:, :1], 128, axis=1)
    values = generate_floats(true, zeros=0.0, constant_rows=(1.0, None))
    assert (values == values[:, :1]).all()
    near(values, true)


def test_hidden_rows_of_a_mask() -> None:
    told: dict[str, Any] = {
        "nan": 0,
        "inf": 1000,
        "negative_inf": 1000,
        "zeros": 0.75,
        "constant_rows": (0.25, -INF),
    }
    values = generate(TensorSpec("float32", (32, 128), 0.0, -INF, -INF, INF, **told), np.random.default_rng(0))
    hidden = np.isneginf(values)
    assert (hidden.sum(), hidden.all(axis=1).sum()) == (1024, 8)
    open_rows: dict[str, Any] = {"nan": 0, "inf": 1000, "zeros": 0.75, "constant_rows": (0.25, 0.0)}
    values = generate(TensorSpec("float32", (32, 128), 0.0, -INF, -INF, INF, **open_rows), np.random.default_rng(0))
    assert (values == 0).all(axis=1).sum() >= 8
    assert np.isneginf(values).sum() == 1000


@pytest.mark.parametrize(
    "told",
    [
        {"zeros": 1.0},
        {"zeros": 0.9, "mode": (7.0, 0.5)},
        {"zeros": 0.5, "constant_rows": (0.99, 0.0)},
        {"zeros": 0.0, "constant_rows": (0.5, -INF)},
        {"zeros": 0.0, "mode": (-1.0, 1.0)},
    ],
)
@pytest.mark.parametrize("shape", [(3,), (70,), (2, 2), (9, 1), (5, 4, 3)])
def test_what_contradicts_still_gives_numbers_in_range(shape: tuple[int, ...], told: dict[str, Any]) -> None:
    spec = TensorSpec("float32", shape, 2.0, -1.0, 0.1, 3.0, **told)
    values = generate(spec, np.random.default_rng(0))
    assert values.shape == shape
    assert np.isfinite(values).all()
    assert (values.max(), values.min()) == (2.0, -1.0)
