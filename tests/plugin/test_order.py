"""Which cases go to which part of a run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.plugin.order import dealt


def test_the_costliest_goes_to_the_cheapest_part() -> None:
    assert dealt([1.0, 5.0, 2.0, 4.0], 2) == [0, 0, 1, 1]
    assert dealt([1.0, 1.0, 1.0], 2) == [0, 1, 0]
    assert dealt([3.0], 4) == [0]
    assert dealt([], 2) == []


@given(st.lists(st.floats(0.5, 100.0), min_size=1, max_size=50), st.integers(1, 8))
def test_no_part_is_costlier_than_the_mean_by_more_than_one_thing(costs: list[float], parts: int) -> None:
    found = dealt(costs, parts)
    totals = [sum(cost for cost, place in zip(costs, found, strict=True) if place == part) for part in range(parts)]
    assert max(totals) <= sum(costs) / parts + max(costs) + 1e-6
    assert set(found) <= set(range(parts))
