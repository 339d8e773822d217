from __future__ import annotations

import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_probe.inputs.draws import round_to_dtype
from pytest_probe.inputs.generated import generate
from pytest_probe.model.dump import TensorSpec

INF, NAN = math.inf, math.nan


def made(dtype: str, shape: tuple[int, ...], *extremes: Any, seed: int = 0, **others: Any) -> np.ndarray:
    spec = TensorSpec(dtype, shape, *extremes, **others)
    return round_to_dtype(generate(spec, np.random.default_rng(seed)), dtype)


def test_zero_dimensions_stay_and_the_value_is_the_maximum() -> None:
    array = made("float32", (), -2.5, -2.5, -2.5, -2.5)
    assert (array.shape, array.dtype, array.item()) == ((), np.dtype(np.float32), -2.5)
    assert made("int64", (), 7, 7).item() == 7
    assert made("bool", (), True, True).item() is True
    assert abs(made("complex64", (), 2.0, 2.0).item()) == pytest.approx(2.0, rel=1e-6)
    assert math.isnan(made("float32", (), NAN, NAN, NAN, NAN).item())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int64", "bool", "uint8"])
def test_empty_stays_empty(dtype: str) -> None:
    assert made(dtype, (3, 0, 2)).shape == (3, 0, 2)


def test_without_statistics_floats_are_standard_normal() -> None:
    array = made("float32", (100, 100))
    assert array.mean() == pytest.approx(0, abs=0.05)
    assert array.std() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_float8(dtype: str) -> None:
    array = made(dtype, (1000,), 3.5, -3.0, 0.0, 31.6).astype(np.float64)
    assert (array.max(), array.min()) == (3.5, -3.0)
    assert np.linalg.norm(array) == pytest.approx(31.6, rel=0.02)


def test_float8_e8m0_has_powers_of_two() -> None:
    array = made("float8_e8m0fnu", (100,)).astype(np.float64)
    assert (np.log2(array) == np.rint(np.log2(array))).all()


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


def test_nan_alone_with_and_without_finite_extremes() -> None:
    array = made("float32", (50,), NAN, NAN, NAN, NAN)
    assert np.isnan(array).sum() == 1
    array = made("float32", (50,), NAN, NAN, NAN, NAN, high=2.0, low=-1.0)
    assert np.isnan(array).sum() == 1
    assert np.nanmax(array) <= 2.0
    assert np.nanmin(array) >= -1.0
    assert np.isnan(made("float32", (50,), NAN, NAN, NAN, NAN, high=NAN, low=NAN)).all()


def test_inf_of_both_signs_where_recorded() -> None:
    array = made("float32", (50,), INF, -INF, NAN, INF, high=4.0, low=-4.0)
    assert np.isposinf(array).sum() == 1
    assert np.isneginf(array).sum() == 1
    assert np.abs(array[np.isfinite(array)]).max() <= 4.0
    array = made("float32", (50,), INF, 1.0, INF, INF)
    assert np.isposinf(array).sum() == 1
    assert array.min() == 1.0
    assert np.isposinf(made("float32", (5,), INF, INF, INF, INF)).all()


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
    assert np.isinf(made("complex64", (9,), INF, 0.0)).sum() == 1


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int64", 2**60, 2**60 + 5), ("uint8", 0, 255), ("int32", -7, 3), ("uint64", 0, 2**64 - 1), ("int8", -128, 127)],
)
def test_integers_keep_dtype_and_range(dtype: str, low: int, high: int) -> None:
    array = made(dtype, (500,), high, low)
    assert array.dtype == np.dtype(dtype)
    assert (int(array.min()), int(array.max())) == (low, high)


def test_a_rounded_maximum_stays_within_the_dtype() -> None:
    assert made("int64", (20,), 2.0**63, 0.0).max() == 2**63 - 1
    assert set(made("int32", (100,)).tolist()) == set(range(10))


def test_booleans_are_all_half_or_none() -> None:
    assert made("bool", (5,), True, True).all()
    assert not made("bool", (5,), False, False).any()
    assert made("bool", (10, 10), True, False).sum() == 50
    assert made("bool", (10, 10)).sum() == 50


def test_an_unknown_dtype_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="quint8"):
        generate(TensorSpec("quint8", (2,)), np.random.default_rng(0))


def test_as_many_true_as_were_recorded() -> None:
    made = generate(TensorSpec("bool", (4, 25), True, False, true=7), np.random.default_rng(0))
    assert np.count_nonzero(made) == 7


@pytest.mark.parametrize(
    ("extremes", "nan", "inf", "signs"),
    [
        ((math.nan, math.nan), 7, 0, 0),
        ((math.nan, math.nan), 3, 5, 5),
        ((math.inf, -1.0), 0, 9, 9),
        ((math.inf, -math.inf), 0, 6, 0),
        ((3.0, -math.inf), 0, 30, -30),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_as_many_nan_and_inf_as_were_recorded(
    extremes: tuple[float, float], nan: int, inf: int, signs: int, dtype: str
) -> None:
    """signs is the sum of their signs: +inf where NaN hides it, both alike where both are extremes."""
    spec = TensorSpec(dtype, (10, 10), *extremes, high=2.0, low=-2.0, nan=nan, inf=inf)
    made = generate(spec, np.random.default_rng(0))
    assert (np.isnan(made).sum(), np.isinf(made).sum()) == (nan, inf)
    assert np.sign(made[np.isinf(made)]).sum() == signs


def test_as_many_nan_in_complex_numbers() -> None:
    spec = TensorSpec("complex64", (10, 10), math.nan, math.nan, high=2.0, low=0.5, nan=4, inf=2)
    made = generate(spec, np.random.default_rng(0))
    assert (np.isnan(made).sum(), np.isinf(made).sum()) == (4, 2)


def test_no_more_than_there_are_elements() -> None:
    made = generate(TensorSpec("float32", (3,), math.nan, math.nan, nan=10, inf=10), np.random.default_rng(0))
    assert np.isnan(made).all()


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


def test_every_row_may_be_constant() -> None:
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


def test_as_many_of_each_sign_of_inf() -> None:
    told: dict[str, Any] = {"high": 2.0, "low": -2.0, "nan": 3, "inf": 9, "negative_inf": 7}
    values = generate(TensorSpec("float32", (10, 10), math.nan, math.nan, **told), np.random.default_rng(0))
    assert (np.isnan(values).sum(), np.isneginf(values).sum(), np.isposinf(values).sum()) == (3, 7, 2)


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
