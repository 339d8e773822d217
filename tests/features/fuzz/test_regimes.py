from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.features.fuzz.regimes import REGIMES, Limits, floats
from pytest_probe.numerics.dtypes import float_format, numpy_dtype

DTYPES = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", REGIMES)
def test_every_regime_has_values_of_the_dtype_in_any_shape(regime: str, dtype: str) -> None:
    for shape in ((), (0,), (1,), (3, 17)):
        values = floats(regime, dtype, shape, None, np.random.default_rng(1))
        assert values.shape == shape
        if regime not in ("nan", "inf"):
            assert np.isfinite(values.astype(numpy_dtype(dtype)).astype(np.float64)).all()


def test_subnormal_numbers_are_below_the_smallest_normal_one() -> None:
    values = floats("subnormal", "float32", (64,), None, np.random.default_rng(0)).astype(np.float32)
    assert np.all(values != 0)
    assert np.all(np.abs(values) < 2.0**-126)


def test_cancellation_leaves_little_of_large_numbers() -> None:
    values = floats("cancellation", "float32", (1000,), None, np.random.default_rng(0))
    assert abs(values.sum()) < 1e-2 * np.abs(values).sum()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", ["near_overflow", "wide", "scaled"])
def test_products_and_sums_inside_do_not_overflow(regime: str, dtype: str) -> None:
    values = floats(regime, dtype, (512,), None, np.random.default_rng(2), limits=Limits(power=2))
    inside = float_format("float32" if dtype != "float64" else dtype)
    with np.errstate(over="ignore"):
        assert np.sum(values**2) < inside.max


def test_mixed_numbers_are_of_all_regimes() -> None:
    values = floats("mixed", "float32", (4, 400), None, np.random.default_rng(0))
    finite = values[np.isfinite(values)]
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    assert np.any((finite != 0) & (np.abs(finite) < 2.0**-126))
    assert np.any(np.abs(finite) > 1e37)
    assert np.any((finite % 1 == 0.5) & (np.abs(finite) < 64))


def test_mixed_numbers_keep_to_the_limits() -> None:
    values = floats("mixed", "float32", (1000,), None, np.random.default_rng(0), limits=Limits(largest=1e6))
    assert np.max(np.abs(values[np.isfinite(values)])) <= 1e6 * (1 + 1e-12)
