from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics.distinct import FIRST, has_distinct


@pytest.mark.parametrize(
    ("values", "count", "told"),
    [
        ([], 1, False),
        ([1.0, 1.0, 2.0], 2, True),
        ([1.0, 1.0, 2.0], 3, False),
        ([np.nan, np.nan, 0.0], 2, True),
        ([np.nan, np.nan, 0.0], 3, False),
        ([0.0, -0.0], 2, False),
        ([1.0] * FIRST + [2.0, 3.0], 3, True),
        ([1.0] * FIRST + [2.0, 3.0], 4, False),
        (np.arange(FIRST + 1.0), FIRST + 1, True),
    ],
)
def test_as_many_different_values_as_asked(values: list[float], count: int, told: bool) -> None:
    assert has_distinct(np.array(values), count) is told
    assert has_distinct(np.array([values]), count) is told
