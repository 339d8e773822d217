from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics import mean_errors
from pytest_probe.numerics.dtypes import AnyArray

INF, NAN = np.inf, np.nan


def biases(actual: AnyArray, rounded: AnyArray) -> tuple[mean_errors.Bias, ...]:
    exact = rounded.astype(np.float64)
    return mean_errors.biases(actual, rounded, exact, exact, np.full(actual.shape, 2.0**-24))


def test_a_shift_shows_in_the_first_a_scaling_in_the_second() -> None:
    rounded = np.concatenate([np.arange(1.0, 51.0), -np.arange(1.0, 51.0)]).astype(np.float32)
    shift, away = biases(rounded + np.float32(1.0), rounded)
    assert (shift.effect, shift.t) == (2.0**24, INF)
    assert away.effect == 0.0
    shift, away = biases(rounded + np.sign(rounded), rounded)
    assert shift.effect == 0.0
    assert away.effect == 2.0**24


def test_fewer_than_32_distinct_values_have_no_bias() -> None:
    rounded = np.repeat(np.arange(1.0, 32.0), 10).astype(np.float32)
    assert biases(rounded + np.float32(1), rounded) == ()
    rounded = np.repeat(np.arange(1.0, 33.0), 10).astype(np.float32)
    assert len(biases(rounded + np.float32(1), rounded)) == 2


@pytest.mark.parametrize(("rows", "told"), [(1, 0), (31, 0), (32, 2)])
def test_what_one_error_takes_to_the_next_number_counts_as_one(rows: int, told: int) -> None:
    """Whole numbers less the logarithm of a row's sum lie as far from the border between two float16 numbers."""
    logs = np.linspace(0.1, 0.4, rows)[:, None]
    exact = 1024.0 + np.arange(100) - logs
    rounded = np.rint(exact).astype(np.float16)
    found = mean_errors.biases(rounded - np.float16(1), rounded, exact, exact, np.full(exact.shape, 2.0**-24))
    assert len(found) == told


def test_an_exact_output_has_no_bias() -> None:
    rounded = np.arange(100.0, dtype=np.float32)
    assert biases(rounded, rounded) == ()


def test_what_is_not_finite_is_left_out_of_a_bias() -> None:
    rounded = np.concatenate([np.arange(1.0, 41.0), [INF, NAN]]).astype(np.float32)
    actual = rounded.copy()
    actual[:40] += 1
    shift, _ = biases(actual, rounded)
    assert shift.effect == 2.0**24


def test_a_bias_needs_both_effect_and_significance() -> None:
    assert mean_errors.Bias(9.0, 11.0).beyond(8.0)
    assert not mean_errors.Bias(9.0, 9.0).beyond(8.0)
    assert not mean_errors.Bias(7.0, 11.0).beyond(8.0)


def test_errors_that_scatter_and_errors_that_stay() -> None:
    """Eight samples: rounding is drawn anew in each, a fault is there in all."""
    errors = np.random.default_rng(0).standard_normal((8, 1000))
    assert mean_errors.scatters(errors)
    assert mean_errors.scatters(np.zeros((8, 10)))
    assert not mean_errors.scatters(errors + 3.0)
    errors[:, 17] += 50.0
    assert not mean_errors.scatters(errors)
