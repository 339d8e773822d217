from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_probe.numerics import allowed_scale
from pytest_probe.numerics.allowed_scale import Spread
from pytest_probe.numerics.dtypes import AnyArray

INF, NAN = np.inf, np.nan
U = 2.0**-24


def spread_of(*sizes: float) -> Spread:
    return Spread.of(np.array(sizes))


def torn(sizes: Any, below: Any, above: Any = False, lost: Any = False) -> Spread:
    """Runs disagree on finiteness where one is -inf, inf or NaN."""
    size, low = np.asarray(sizes), np.asarray(below)
    high = np.broadcast_to(np.asarray(above), low.shape)
    nan = np.broadcast_to(np.asarray(lost), low.shape)
    return Spread(size, low | high | nan, high, low, nan)


def test_scatter_is_the_largest_deviation_of_any_run() -> None:
    runs = [np.array([1.0, 2.5]), np.array([1.25, 2.0])]
    found = allowed_scale.spread_of(runs, np.array([1.0, 2.0]), "float32")
    assert found is not None
    assert found.size.tolist() == [0.25, 0.5]
    assert not found.disagree.any()


def test_without_runs_there_is_no_spread() -> None:
    assert allowed_scale.spread_of([], np.array([1.0]), "float32") is None
    assert allowed_scale.among([np.array([1.0])], "float32") is None


@pytest.mark.parametrize(
    ("run", "expected", "size", "torn"),
    [
        (INF, INF, 0.0, False),
        (NAN, NAN, 0.0, False),
        (-INF, INF, 0.0, True),
        (NAN, INF, 0.0, True),
        (NAN, 1.0, 0.0, True),
        (INF, 1.0, 0.0, True),
        (1.0, NAN, 0.0, True),
    ],
)
def test_a_run_that_disagrees_on_finiteness_tears(run: float, expected: float, size: float, torn: bool) -> None:
    found = allowed_scale.spread_of([np.array([run])], np.array([expected]), "float32")
    assert found is not None
    assert (found.size.tolist(), found.disagree.tolist()) == ([size], [torn])


def test_a_torn_element_keeps_what_the_other_runs_show() -> None:
    found = allowed_scale.spread_of([np.array([NAN]), np.array([1.5])], np.array([1.0]), "float32")
    assert found is not None
    assert (found.size.tolist(), found.disagree.tolist()) == ([0.5], [True])


def test_beyond_the_range_only_what_falls_back_into_it_deviates() -> None:
    expected = np.array([70000.0, 70000.0, 1.0])
    found = allowed_scale.spread_of([np.array([60000.0, 69000.0, 1.5])], expected, "float16")
    assert found is not None
    assert found.size.tolist() == [65504.0 - 60000.0, 0.0, 0.5]


def test_complex_runs_deviate_by_modulus() -> None:
    found = allowed_scale.spread_of([np.array([4 + 5j])], np.array([1 + 1j]), "complex64")
    assert found is not None
    assert found.size.tolist() == [5.0]


def test_among_takes_the_widest_pair() -> None:
    found = allowed_scale.among([np.array([1.0, 0.0]), np.array([1.5, 0.25]), np.array([0.75, 0.0])], "float32")
    assert found is not None
    assert found.size.tolist() == [0.75, 0.25]


def test_joined_is_the_larger_of_both() -> None:
    one, other = spread_of(1.0, 4.0), torn([3.0, 2.0], [False, True])
    both = one.joined(other)
    assert (both.size.tolist(), both.disagree.tolist()) == ([3.0, 4.0], [False, True])
    assert one.joined(None) is one


def test_pooled_takes_the_largest_among_eight_neighbours_of_the_side_where_that_is_smaller() -> None:
    size = np.zeros(40)
    size[[16, 23]] = 7.0, 5.0
    found = allowed_scale.pooled(torn(size, size > 1), np.arange(40.0) + 40, np.ones(40))
    assert np.flatnonzero(found.size).tolist() == list(range(16, 24))
    assert found.size[[16, 17, 22, 23]].tolist() == [7.0, 5.0, 5.0, 5.0]
    assert np.flatnonzero(found.disagree).tolist() == [16, 23]


def test_pooled_takes_the_side_that_has_eight_neighbours() -> None:
    size = np.zeros(40)
    size[[1, 34]] = 7.0
    found = allowed_scale.pooled(Spread.of(size), np.arange(40.0) + 40, np.ones(40))
    assert np.flatnonzero(found.size).tolist() == [0, 1, *range(34, 40)]


def test_pooled_leaves_out_what_is_twice_as_large_or_half() -> None:
    order = np.array([-8.0, -3.0, 0.0, 0.5, 1.0, 2.0, 3.0, 8.0])
    found = allowed_scale.pooled(Spread.of(np.array([9.0, 3.0, 0.25, 1.0, 2.0, 4.0, 5.0, 8.0])), order, np.ones(8))
    assert found.size.tolist() == [9.0, 5.0, 0.25, 2.0, 4.0, 5.0, 5.0, 9.0]


def test_pooled_counts_in_the_unit_of_each_element_and_nothing_without_one() -> None:
    size, unit = np.array([1.0, 2.0, 0.5, 3.0, 4.0]), np.array([1.0, 10.0, 0.01, 0.0, np.inf])
    found = allowed_scale.pooled(Spread.of(size), np.ones(5), unit)
    assert found.size == pytest.approx([50.0, 500.0, 0.5, 3.0, 4.0])


def test_pooled_goes_by_the_order_and_keeps_the_shape() -> None:
    size = np.zeros((2, 20))
    size[0, 3] = 1.0
    found = allowed_scale.pooled(torn(size, size > 1), np.arange(40.0)[::-1].reshape(2, 20), np.ones((2, 20)))
    assert found.size.shape == (2, 20)
    assert np.flatnonzero(found.size).tolist() == list(range(4))


def test_pooled_leaves_a_single_element_alone() -> None:
    one = spread_of(3.0)
    assert allowed_scale.pooled(one, np.zeros(1), np.ones(1)) is one


def scale(expected: Any, spread: Spread | None = None, dtype: Any = "float32", share: float = 0.0) -> AnyArray:
    return allowed_scale.scale(np.asarray(expected), spread, dtype=dtype, roundoff=U, share=share)


def test_scale_is_a_roundoff_of_the_reference_without_runs() -> None:
    assert scale([1.0, -2.0]).tolist() == [U, 2 * U]


def test_scale_does_not_fall_below_what_every_element_is_granted() -> None:
    """A kernel computes float16 numbers in float32, and rounds once."""
    assert scale([0.0]).tolist() == [2.0**-150]
    assert scale([0.0], dtype="bfloat16").tolist() == [2.0**-134]
    assert scale([0.0], dtype="float16").tolist() == scale([0.0], dtype="float8_e5m2").tolist() == [2.0**-127]
    assert scale([0.0], dtype="float64").tolist() == [2.0**-1074]


def test_scale_takes_the_spread_and_the_share_of_all() -> None:
    assert scale([0.0, 0.0, 0.0, 0.0], spread_of(0.0, 0.0, 0.0, 4.0), share=1.0).tolist() == [1.0, 1.0, 1.0, 4.0]
    assert scale([0.0, 0.0], spread_of(0.0, 4.0)).tolist() == [2.0**-150, 4.0]


def test_an_eighth_of_the_median_of_what_moves_is_granted() -> None:
    assert allowed_scale.median_share(spread_of(0.0, 8.0, 0.0, 16.0, 800.0)) == 2.0
    assert allowed_scale.median_share(spread_of(0.0, 0.0)) == 0.0
    weights = np.array([9.0, 1.0, 9.0, 1.0, 8.0])
    assert allowed_scale.median_share(spread_of(0.0, 8.0, 0.0, 16.0, 800.0), weights) == 100.0


def test_scale_is_bounded_where_the_reference_overflows() -> None:
    assert scale([1e6, INF], dtype="float16").tolist() == [65504.0 * U, 65504.0 * U]


def test_root_mean_square_does_not_overflow() -> None:
    assert allowed_scale.root_mean_square(np.array([3e200, 4e200])) == pytest.approx(12.5**0.5 * 1e200)
    assert allowed_scale.root_mean_square(np.array([])) == 0.0
    assert allowed_scale.root_mean_square(np.zeros(3)) == 0.0


def test_the_nearest_run_of_each_element() -> None:
    """inf and NaN are nearest to themselves; the first run stands where none is nearer."""
    actual = np.array([1.0, 4.0, np.inf, np.nan, 2.0])
    runs = [np.array([3.0, 3.5, 7.0, 7.0, 1.0]), np.array([1.5, 5.0, np.inf, np.nan, 3.0])]
    found = allowed_scale.nearest_run(actual, runs)
    assert np.array_equal(found, [1.5, 3.5, np.inf, np.nan, 1.0], equal_nan=True)
