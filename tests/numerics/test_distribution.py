from __future__ import annotations

import numpy as np
import pytest

from pytest_probe.numerics.distribution import COLUMNS, line


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ([], ""),
        ([0.0, 0.5], "all at most 0.5"),
        ([0.0, 0.5 * 2.0**16], f"<= 0.5 █{' ' * (COLUMNS - 2)}█ 3.3e+04"),
        ([0.0] * 63 + [0.5 * 2.0**16], f"<= 0.5 █{' ' * (COLUMNS - 2)}▂ 3.3e+04"),
    ],
)
def test_a_line(errors: list[float], text: str) -> None:
    assert line(np.array(errors)) == text


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_last(value: float) -> None:
    assert line(np.array([0.0, value])) == f"<= 0.5 █{' ' * (COLUMNS - 2)}█ not finite"


def test_a_few_of_many_show() -> None:
    errors = np.zeros(1_000_000)
    errors[0] = 1e6
    assert line(errors) == f"<= 0.5 █{' ' * (COLUMNS - 2)}▁ 1e+06"
