"""Values counted between powers of two."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_probe.numerics.histogram import COUNTED, Histogram, histogram


def test_powers_of_two() -> None:
    values = np.array([0.5, 0.75, 1.0, 1.999, 2.0, 5.0])
    assert histogram(values) == Histogram(-1, (2, 2, 1, 1), 0, 0)


def test_what_lies_beyond() -> None:
    values = np.array([[0.0, 1e-9, 3.0], [np.inf, np.nan, 1e30]])
    assert histogram(values) == Histogram(1, (1,), 2, 3)


def test_nothing() -> None:
    assert histogram(np.zeros(3)) == Histogram(0, (), 3, 0)
    assert histogram(np.empty(0)) == Histogram(0, (), 0, 0)


def test_of_many_the_largest_counts_too() -> None:
    values = np.ones(3 * COUNTED + 1)
    values[1] = 1024.0
    found = histogram(values)
    assert (found.step, found.first, found.counts[-1]) == (4, 0, 1)
    assert sum(found.counts) == -(-values.size // 4) + 1
    values[2] = np.nan
    assert histogram(values).large == 1


@given(arrays.arrays(np.float64, st.integers(0, 60), elements=st.floats(0) | st.just(np.nan)))
def test_every_value_counts_once(values: np.ndarray) -> None:
    found = histogram(values)
    assert sum(found.counts) + found.small + found.large == values.size
    for place, number in enumerate(found.counts):
        low = 2.0 ** (found.first + place)
        assert number == np.count_nonzero((values >= max(low, 2.0**-16)) & (values < 2 * low))
