"""What the controller keeps of a host that goes away."""

from __future__ import annotations

from pytest_probe.features.cluster.controller import HostState
from pytest_probe.features.cluster.messages import Place


def host() -> HostState:
    return HostState(Place("id", "node", 0, 1), ready=True, informed=True, parts={4: [7], 5: [8, 9]})


def test_of_a_lost_host_the_first_part_alone_ran() -> None:
    lost = host()
    found = []
    for part in (4, 5):
        found.append(lost.lose(part))
        del lost.parts[part]
    assert found == [True, False]


def test_which_part_ran_does_not_hang_on_the_order_of_events() -> None:
    lost = host()
    found = []
    for part in (5, 4):
        found.append(lost.lose(part))
        del lost.parts[part]
    assert found == [False, True]


def test_a_lost_host_gets_no_more_cases_while_its_parts_come_back() -> None:
    lost = host()
    lost.lose(4)
    assert (lost.ready, lost.informed) == (False, False)


def test_a_host_that_was_lost_before_it_was_ready_ran_nothing() -> None:
    assert not HostState(Place("id", "node", 0, 1)).lose(None)
