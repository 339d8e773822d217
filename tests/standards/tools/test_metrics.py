from __future__ import annotations

import numpy as np

from pytest_probe.standards.tools import measures
from tests.support.asking import comparison, normal

X = normal(4, 5)


def test_all_metrics_that_apply_are_measured() -> None:
    found = measures(comparison(X * (1 + 2.0**-20), X, dtype="float32"), "auto")
    assert found["count"] == 20
    assert 0.9e-6 < float(found["max_rel_error"]) < 1.1e-6
    assert "mean_rel_error" in found


def test_integers_have_few() -> None:
    found = measures(comparison(np.array([1, 2]), np.array([1, 3])), "auto")
    assert (found["binary_mismatch_ratio"], "rmse" in found) == (0.5, False)


def test_the_tool_says_what_is_small() -> None:
    asked = comparison(np.full(4, 5e-7), np.full(4, 4e-7), dtype="float32")
    assert measures(asked, "auto")["small_value_error_ratio"] == 1.0
    assert measures(asked, "msprobe-26")["small_value_error_ratio"] == 1.0
    tiny = comparison(np.full(4, 5e-10 + 4e-7), np.full(4, 4e-7), dtype="float32")
    assert measures(tiny, "msprobe-1.0")["small_value_error_ratio"] == 0.0
