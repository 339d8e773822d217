"""Groups of cases dealt out: heaviest first, the last ones singly, what does not fit later."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.features.cluster.sending import MAX_PART_COST, Dealing


def all_of(dealing: Dealing, processes: int) -> list[list[int]]:
    parts = []
    while dealing:
        parts.append(dealing.take(processes))
    return parts


def test_the_heaviest_come_first_and_the_last_singly() -> None:
    parts = all_of(Dealing([1.0, 8.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0], [0] * 8), 1)
    # A quarter of 16, of 8, of 6 is less than two; then of 4 and less.
    assert parts == [[1], [4], [0], [2], [3], [5], [6], [7]]


def test_many_alike_go_out_together() -> None:
    parts = all_of(Dealing([1.0] * 1000, [0] * 1000), 2)
    assert [len(part) for part in parts[:4]] == [125, 109, 95, 83]
    assert [len(part) for part in parts[-8:]] == [1] * 8
    assert sorted(place for part in parts for place in part) == [*range(1000)]


def test_a_part_takes_no_longer_than_most() -> None:
    dealing = Dealing([1.0] * 100_000, [0] * 100_000)
    assert len(dealing.take(1)) == MAX_PART_COST


def test_what_does_not_fit_stays_in_its_place() -> None:
    dealing = Dealing([5.0, 4.0, 3.0], [100, 10, 100])
    assert dealing.take(1, room=50) == [1]
    assert dealing.take(1, room=50) == []
    assert len(dealing) == 2
    assert dealing.take(1, room=100) == [0]


def test_what_fits_nowhere_is_dropped() -> None:
    dealing = Dealing([5.0, 4.0, 3.0], [100, 10, 101])
    assert dealing.drop(larger_than=99) == [0, 2]
    assert (len(dealing), dealing.take(1)) == (1, [1])


def test_what_is_given_back_comes_next() -> None:
    dealing = Dealing([5.0, 4.0, 3.0, 2.0], [0] * 4)
    first = dealing.take(1)
    dealing.give_back(first, alone=False)
    assert dealing.take(1) == first == [0]


def test_what_was_lost_goes_out_by_itself() -> None:
    dealing = Dealing([1.0] * 100, [0] * 100)
    lost = dealing.take(1)
    assert len(lost) == 25
    dealing.give_back(lost, alone=True)
    assert [len(dealing.take(1)) for _ in lost] == [1] * 25
    assert len(dealing.take(1)) > 1


@given(st.lists(st.floats(0.01, 1e5), max_size=200), st.integers(1, 20))
def test_each_case_is_dealt_once(costs: list[float], processes: int) -> None:
    parts = all_of(Dealing(costs, [0] * len(costs)), processes)
    assert sorted(place for part in parts for place in part) == [*range(len(costs))]


@pytest.mark.parametrize("wrong", [1.0, 4.0])
def test_nobody_waits_long_where_estimates_are_wrong(wrong: float) -> None:
    """Half of the cases take so many times what was estimated: what the last one waits for is a small part."""
    found = [1.0 + (place % 2) * (wrong - 1) for place in range(20_000)]
    dealing, free, busy = Dealing([1.0] * len(found), [0] * len(found)), [(0.0, host) for host in range(8)], sum(found)
    end = 0.0
    while free:
        now, host = heapq.heappop(free)
        part = dealing.take(8)
        if part:
            end = max(end, now + sum(found[place] for place in part))
            heapq.heappush(free, (now + sum(found[place] for place in part), host))
    assert 1 - busy / (8 * end) < 0.01
