from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics import mean_errors, noise_limits
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.noise_limits import Limits

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


@pytest.mark.parametrize(
    ("asked", "largest", "rms"),
    [
        ({"elementwise": False, "fan_in": 1, "count": 49}, 64.0, 16.0),
        ({"elementwise": True, "fan_in": 1, "count": 49}, 16.0, 4.0),
        ({"elementwise": False, "fan_in": 1024, "count": 49}, 64.0, 16.0),
        ({"elementwise": False, "fan_in": 4096, "count": 49}, 128.0, 32.0),
        ({"elementwise": False, "fan_in": 65536, "count": 49}, 512.0, 128.0),
        ({"elementwise": False, "fan_in": 10**7, "count": 49}, 512.0, 128.0),
        ({"elementwise": False, "fan_in": 9, "count": 49, "winograd": True}, 512.0, 64.0),
        ({"elementwise": False, "fan_in": 9, "count": 49, "factor": 2.0}, 128.0, 32.0),
        ({"elementwise": False, "fan_in": 64, "count": 49, "equal_terms": True}, 256.0, 64.0),
        ({"elementwise": False, "fan_in": 10**6, "count": 49, "equal_terms": True}, 4096.0, 1024.0),
        ({"elementwise": False, "fan_in": 1, "count": 0}, 64.0, 64.0),
        ({"elementwise": True, "fan_in": 1, "count": 1}, 16.0, 16.0),
    ],
)
def test_limits(asked: dict[str, Any], largest: float, rms: float) -> None:
    assert noise_limits.limits_for(**asked) == Limits(largest, rms)


@pytest.mark.parametrize(
    ("expected", "rms"),
    [
        ([3.0] * 2, 16.0),  # one error of its own: 2 (1 + 7)
        ([3.0] * 49, 8.0),  # and at most twice 2 (1 + 1)
        (np.arange(1.0, 50.0), 4.0),  # 49 of their own: as they were
        (np.repeat([1.0, 2.0, 3.0, 5.0], 4), 9.0),  # four: 2 (1 + 7 / 2)
        ([1.0, 1.0 + 2.0**-40], 16.0),  # one in float32
        ([0.0, np.nan, np.inf], 2 * (1 + 7 / 2**0.5)),  # nothing to count
        (np.full(2, 1 + 1j), 16.0),
    ],
)
def test_copies_count_once(expected: Any, rms: float) -> None:
    values = np.asarray(expected)
    count = int(np.count_nonzero(values))
    limits = noise_limits.limits_for(elementwise=True, fan_in=1, count=count)
    found = noise_limits.for_copies(limits, values)
    assert found.largest == 16.0
    assert found.rms == pytest.approx(rms)


@pytest.mark.parametrize("count", [2, 4, 10, 20, 100, 1000])
def test_normal_errors_are_beyond_chance_in_less_than_one_output_of_a_million(count: int) -> None:
    """Half of a chi-square variable of an even number of degrees is beyond h as a Poisson variable of mean h is below
    half that number."""
    half = count * noise_limits.by_chance(count) ** 2 / 2
    terms = [k * math.log(half) - half - math.lgamma(k + 1) for k in range(count // 2)]
    assert sum(map(math.exp, terms)) < 1e-6


def test_one_normal_error_is_beyond_chance_in_one_output_of_a_million() -> None:
    assert math.erfc(noise_limits.by_chance(1) / math.sqrt(2)) < 1e-6


def test_limits_of_correlated_elements_are_those_of_fewer_and_never_closer() -> None:
    limits = noise_limits.limits_for(elementwise=False, fan_in=1, count=10_000)
    assert noise_limits.for_correlated(limits, 10_000, 10_000) == limits
    assert noise_limits.for_correlated(limits, 10_000, 100).rms == pytest.approx(8 * 1.39)
    assert noise_limits.for_correlated(limits, 10_000, 0.5).rms == pytest.approx(8 * 4.9)
    assert noise_limits.for_correlated(limits, 10_000, 0.5).largest == limits.largest


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [
        ([1.0, 2.0], 6.0),
        ([9.0, 0.0], 4.0 * 2.0**0.5),
        ([3.0, 3.0, 30.0], 30.0**0.5),
        ([9.0, NAN, 9.0, INF], 4.0),
        ([], 6.0),
    ],
    ids=["below both limits", "one decides the RMS", "the rest", "of finite ones", "none"],
)
def test_ratios_are_cut_where_the_rms_is_the_limit(ratios: list[float], wanted: float) -> None:
    found = noise_limits.cap(np.array(ratios), Limits(6.0, 4.0))
    assert found == pytest.approx(wanted, rel=1e-12)
