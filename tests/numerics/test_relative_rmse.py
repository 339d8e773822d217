"""The RMS of errors over the RMS of the reference, and what makes it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.numerics.relative_rmse import relative_rmse

NAN, INF = math.nan, math.inf


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
