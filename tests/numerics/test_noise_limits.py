from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics import noise_limits
from pytest_probe.numerics.noise_limits import Limits

INF, NAN = np.inf, np.nan


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
