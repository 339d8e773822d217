from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.standards.diagnosis.failed_output import common_factors, is_uniform

NUMBERS = np.random.default_rng(0).standard_normal(200)


@pytest.mark.parametrize("factor", [1.001, -2.0, 0.5, 1e-3])
def test_the_number_that_all_are_multiplied_by(factor: float) -> None:
    actual = (NUMBERS * factor).astype(np.float32).astype(np.float64)
    found = list(common_factors(actual, NUMBERS, "float32"))
    assert np.allclose(np.abs(found), abs(factor), rtol=1e-6)
    assert found[-1] == pytest.approx(factor)
    assert is_uniform(actual, NUMBERS, factor)


def test_what_is_not_finite_or_next_to_zero_tells_no_factor() -> None:
    actual = np.array([np.nan, 1.0, 5.0, np.inf, 2.0])
    expected = np.array([1.0, np.inf, 1e-40, 1.0, 1.0])
    assert list(common_factors(actual, expected, "float32")) == [2.0, 2.0, 2.0]
    assert not list(common_factors(actual[:1], expected[:1], "float32"))


def test_rounding_and_other_orders_have_no_common_factor() -> None:
    rounded = NUMBERS.astype(np.float16).astype(np.float64)
    for actual in (rounded, np.roll(NUMBERS, 1), NUMBERS + 0.5):
        assert not is_uniform(actual, NUMBERS, next(common_factors(actual, NUMBERS, "float32")))


def test_few_different_numbers_show_no_factor() -> None:
    few = np.repeat([1.0, 2.0, 3.0], 30)
    assert not is_uniform(2 * few, few, 2.0)
