from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from pytest_probe.numerics import allowed_scale, mean_errors, noise_ratio
from pytest_probe.numerics.allowed_scale import Poles, Spread
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.noise_ratio import Limits, Noise
from tests.numerics.test_allowed_scale import spread_of, torn

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
    assert noise_ratio.limits_for(**asked) == Limits(largest, rms)


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
    limits = noise_ratio.limits_for(elementwise=True, fan_in=1, count=count)
    found = noise_ratio.for_copies(limits, values)
    assert found.largest == 16.0
    assert found.rms == pytest.approx(rms)


@pytest.mark.parametrize("count", [2, 4, 10, 20, 100, 1000])
def test_normal_errors_are_beyond_chance_in_less_than_one_output_of_a_million(count: int) -> None:
    """Half of a chi-square variable of an even number of degrees is beyond h as a Poisson variable of mean h is below
    half that number."""
    half = count * noise_ratio.by_chance(count) ** 2 / 2
    terms = [k * math.log(half) - half - math.lgamma(k + 1) for k in range(count // 2)]
    assert sum(map(math.exp, terms)) < 1e-6


def test_one_normal_error_is_beyond_chance_in_one_output_of_a_million() -> None:
    assert math.erfc(noise_ratio.by_chance(1) / math.sqrt(2)) < 1e-6


def test_limits_of_correlated_elements_are_those_of_fewer_and_never_closer() -> None:
    limits = noise_ratio.limits_for(elementwise=False, fan_in=1, count=10_000)
    assert noise_ratio.for_correlated(limits, 10_000, 10_000) == limits
    assert noise_ratio.for_correlated(limits, 10_000, 100).rms == pytest.approx(8 * 1.39)
    assert noise_ratio.for_correlated(limits, 10_000, 0.5).rms == pytest.approx(8 * 4.9)
    assert noise_ratio.for_correlated(limits, 10_000, 0.5).largest == limits.largest


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
    found = noise_ratio.cap(np.array(ratios), Limits(6.0, 4.0))
    assert found == pytest.approx(wanted, rel=1e-12)


INF, NAN = np.inf, np.nan
U = 2.0**-24


def ratios(
    actual: Any, expected: Any, spread: Spread | None = None, dtype: Any = "float32", roundoff: float = U
) -> Noise:
    wide = np.asarray(expected, np.complex128 if np.iscomplexobj(expected) else np.float64)
    values = np.asarray(actual) if np.iscomplexobj(actual) else np.asarray(actual, np.float64)
    share = 0.0 if spread is None else allowed_scale.RMS_SHARE * allowed_scale.root_mean_square(spread.size)
    return noise_ratio.measure_noise(values, wide, spread, dtype=dtype, roundoff=roundoff, share=share)


def test_a_ratio_on_the_limit_is_within() -> None:
    limits = Limits(64.0, 8.0)
    assert Noise(np.zeros(1), 64.0, 8.0, 1, 0).within(limits)
    assert not Noise(np.zeros(1), 64.1, 8.0, 1, 0).within(limits)
    assert not Noise(np.zeros(1), 64.0, 8.1, 1, 0).within(limits)
    assert not Noise(np.zeros(1), NAN, NAN, 1, 0).within(limits)


@pytest.mark.parametrize(("expected", "lost", "excused"), [(1e60, True, 1), (1e60, False, 0), (1e20, True, 0)])
def test_nan_of_an_overflow(expected: float, lost: bool, excused: int) -> None:
    """inf less inf, where the dtype has no number for the right one: as runs that round have it."""
    found = ratios([NAN, 1.0], [expected, 1.0], torn([0.0, 0.0], [False, False], False, [lost, False]))
    assert (found.undecided, found.largest) == (excused, 0.0 if excused else INF)


def test_elements_of_a_sample_count_as_many_as_they_stand_for() -> None:
    weights = np.array([7.0, 1.0])
    assert allowed_scale.root_mean_square(np.array([1.0, 3.0]), weights) == pytest.approx(2**0.5)
    found = noise_ratio.noise_of_ratios(np.array([1.0, 3.0]), np.ones(2), 0, weights)
    assert (found.largest, found.count) == (3.0, 8)
    assert found.rms == pytest.approx(2**0.5)


def test_half_an_ulp_is_granted() -> None:
    found = ratios([1 + 2.0**-24], [1.0])
    assert (found.largest, found.rms) == (0.0, 0.0)


def test_what_exceeds_half_an_ulp_counts_in_roundoffs() -> None:
    found = ratios([1 + 2.0**-23, 2.0], [1.0, 2.0])
    assert found.ratios.tolist() == [1.0, 0.0]
    assert (found.largest, found.rms, found.count) == (1.0, 0.5**0.5, 2)


def test_the_output_dtype_buys_its_half_ulp_and_nothing_more() -> None:
    assert ratios([1 + 2.0**-9], [1.0], dtype="bfloat16").largest == 0.0
    assert ratios([1 + 2.0**-7], [1.0], dtype="bfloat16").largest == 2.0**24 * (2.0**-7 - 2.0**-8)


def test_a_zero_where_there_was_a_subnormal_gradient_is_far_off() -> None:
    assert ratios([0.0], [2.0**-15], dtype="float16").largest == 2**24 * (1 - 2.0**-10)
    assert ratios([2.0**-24], [0.25 * 2.0**-24], dtype="float16").largest == 2.0**24


def test_zeros_that_should_be_zero_are_no_noise() -> None:
    found = ratios([0.0, 0.0], [0.0, 0.0], dtype="float64", roundoff=2.0**-53)
    assert (found.largest, found.rms, found.count) == (0.0, 0.0, 0)


def test_rms_is_taken_of_elements_that_are_not_zero() -> None:
    found = ratios([1 + 2.0**-23, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0])
    assert (found.rms, found.count) == (1.0, 1)
    assert ratios([1.0, 0.0], [0.0, 0.0], dtype="float16").count == 0


def test_empty_arrays_have_a_noise_ratio_of_zero() -> None:
    found = ratios([], [])
    assert (found.largest, found.rms, found.count, found.undecided) == (0.0, 0.0, 0, 0)


@pytest.mark.parametrize("spread", [None, spread_of(0.5)])
@pytest.mark.parametrize(
    ("actual", "expected", "ratio"),
    [(NAN, 1.0, INF), (1.0, NAN, INF), (INF, NAN, INF), (NAN, NAN, 0.0), (NAN, INF, INF), (INF, INF, 0.0)],
)
def test_nan_is_right_where_the_reference_is_nan_and_nowhere_else(
    actual: float, expected: float, ratio: float, spread: Spread | None
) -> None:
    assert ratios([actual], [expected], spread).largest == ratio


@pytest.mark.parametrize(
    ("actual", "expected", "content"),
    [
        (INF, 70000.0, True),
        (65504.0, 70000.0, True),
        (-INF, -70000.0, True),
        (-INF, 70000.0, False),
        (60000.0, 70000.0, False),
        (60000.0, INF, False),
        (65504.0, INF, False),
        (-INF, INF, False),
        (NAN, INF, False),
        (INF, 65519.999, True),
        (INF, 65504.0, False),
        (INF, 60000.0, False),
        (NAN, 70000.0, False),
    ],
)
def test_overflow(actual: float, expected: float, content: bool) -> None:
    assert (ratios([actual], [expected], dtype="float16").largest <= 64) == content


@pytest.mark.parametrize(
    ("actual", "expected", "content"),
    [(NAN, 1000.0, True), (NAN, -1000.0, True), (448.0, 1000.0, True), (NAN, 400.0, False), (NAN, NAN, True)],
)
def test_a_format_without_inf_overflows_to_nan(actual: float, expected: float, content: bool) -> None:
    dtype = ml_dtypes.float8_e4m3fn
    found = noise_ratio.measure_noise(
        np.array([actual], dtype), np.array([expected]), None, dtype=dtype, roundoff=U, share=0.0
    )
    assert (found.largest == 0.0) == content


@pytest.mark.parametrize(
    ("actual", "expected", "ratio"),
    [
        (1 + 1j, 1 + 1j, 0.0),
        (complex(INF, 1), complex(1e39, 1), 0.0),
        (complex(1, INF), complex(1, INF), 0.0),
        (complex(NAN, 1), 1 + 1j, INF),
        (complex(NAN, 1), complex(NAN, 1), 0.0),
        # 8 ulp off in both parts: sqrt(2) (8 - 1/2) ulp over u sqrt(2).
        (complex(1 + 2.0**-20, 1 + 2.0**-20), 1 + 1j, 15.0),
    ],
)
def test_complex_is_judged_by_modulus(actual: complex, expected: complex, ratio: float) -> None:
    assert ratios([actual], [expected], dtype="complex64").largest == pytest.approx(ratio)


def test_where_runs_are_torn_the_device_may_disagree_on_finiteness_too() -> None:
    runs = torn([0.0] * 3, [True, False, True], [False, True, True])
    runs = replace(runs, poles=Poles(np.array([INF, INF, 2.0]), np.full(3, INF)))
    found = ratios([-INF, INF, 2.0], [1.0, 1.0, INF], runs)
    assert (found.largest, found.undecided) == (0.0, 3)
    assert ratios([INF, INF, 2.0], [1.0, 1.0, INF], runs).largest > 1e45
    assert ratios([NAN, INF, 2.0], [1.0, 1.0, INF], runs).largest == INF


@pytest.mark.parametrize(
    ("run", "actual", "right"),
    [
        (INF, INF, True),
        (INF, -INF, False),
        (INF, 65504.0, False),
        (20.0, 20.0, True),
        (20.0, 1e4, True),
        (20.0, 19.0, False),
        (20.0, -20.0, False),
        (20.0, 0.0, False),
        (20.0, INF, True),
        (20.0, -INF, False),
        (20.0, NAN, False),
        (-20.0, -20.0, True),
        (-20.0, -INF, True),
        (-20.0, 19.0, False),
        (1e300, 65504.0, True),
        (1e300, 6e4, False),
        (0.0, INF, False),
        (0.0, 0.0, True),
        (NAN, NAN, True),
        (NAN, 0.0, False),
        (-INF, -INF, True),
    ],
)
@pytest.mark.parametrize("expected", [INF, NAN])
def test_in_place_of_an_infinity_or_nan_stands_what_a_run_has(
    expected: float, run: float, actual: float, right: bool
) -> None:
    spread = allowed_scale.spread_of([np.array([run, 1.0])], np.array([expected, 1.0]), "float16")
    own = actual == expected or (np.isnan(actual) and np.isnan(expected))
    assert (ratios([actual, 1.0], [expected, 1.0], spread, dtype="float16").largest == 0) == (own or right)


def test_where_runs_are_torn_finite_values_are_judged() -> None:
    found = ratios([1.5], [1.0], torn([0.0], [True]))
    assert found.undecided == 0
    assert found.largest == 2.0**24 * (0.5 - 2.0**-24)


def test_an_overflowing_element_says_nothing_about_the_others() -> None:
    expected = np.array([1.0, 1e200])
    found = allowed_scale.spread_of([np.array([1.0, 1.1e200])], expected, "float32")
    assert ratios([1.5, INF], expected, found).largest == 2.0**24 * (0.5 - 2.0**-24)
