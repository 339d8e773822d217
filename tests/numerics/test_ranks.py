"""The order of many numbers is NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics.ranks import stable_order

RANDOM = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0])


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.standard_normal(40_000).astype(np.float32).astype(np.float64),
        RANDOM.standard_normal(40_000),
        RANDOM.choice(SPECIAL, 40_000),
        np.where(RANDOM.random(40_000) < 0.5, RANDOM.choice(SPECIAL, 40_000), RANDOM.random(40_000)),
        RANDOM.integers(-3, 3, (200, 200)).astype(np.float64),
        RANDOM.standard_normal((200, 200)).astype(np.float32).astype(np.float64).T,
        np.zeros(40_000),
        RANDOM.standard_normal(7),
    ],
    ids=["float32", "float64", "special", "special float64", "ties", "turned", "equal", "few"],
)
def test_order(values: Any) -> None:
    assert np.array_equal(stable_order(values), np.argsort(values, axis=None, kind="stable"))
