"""How items that come costliest first are handed out to workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.scheduler import LoadScheduling

from pytest_probe.plugin.scheduling import FEWEST, MOST, CostlyFirst


class Worker:
    """A worker that runs nothing: what it was sent, and whether it may end."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.sent: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.sent += places

    def shutdown(self) -> None:
        self.shutting_down = True


def started(items: list[str], workers: int = 2) -> tuple[Any, list[Worker]]:
    options = {"maxschedchunk": None, "tx": ["popen"] * workers}
    config = SimpleNamespace(getoption=lambda name, default=None: options.get(name, default), option=None)
    config.getvalue = config.getoption
    scheduler: Any = CostlyFirst(cast(pytest.Config, config))
    nodes = [Worker(f"gw{number}") for number in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, items)
    scheduler.schedule()
    return scheduler, nodes


def run_all(scheduler: LoadScheduling, nodes: list[Any], seconds: float) -> None:
    while any(scheduler.node2pending[node] for node in nodes):
        for node in nodes:
            if scheduler.node2pending[node]:
                scheduler.mark_test_complete(node, scheduler.node2pending[node][0], seconds)


SINGLES = [f"dump.json::Torch.add.{number}.forward" for number in range(40)]
PAIRS = [
    f"dump.json::Torch.add.{number}.{direction}{dtype}"
    for number in range(20)
    for dtype in ("", "[float16]")
    for direction in ("forward", "backward")
]


def test_workers_begin_by_turns_with_few_items() -> None:
    _, nodes = started(SINGLES)
    assert [node.sent for node in nodes] == [[0, 1], [2, 3]]


def test_what_takes_long_is_not_sent_ahead_of_its_time() -> None:
    scheduler, nodes = started(SINGLES)
    for _ in range(2):
        scheduler.mark_test_complete(nodes[0], scheduler.node2pending[nodes[0]][0], 10.0)
    assert len(scheduler.node2pending[nodes[0]]) < FEWEST
    assert nodes[1].sent == [2, 3]


def test_many_quick_items_are_sent_at_once() -> None:
    scheduler, nodes = started(SINGLES * 10)
    scheduler.mark_test_complete(nodes[0], 0, 0.001)
    assert len(scheduler.node2pending[nodes[0]]) == MOST


@pytest.mark.parametrize("items", [SINGLES, PAIRS, PAIRS[:6], SINGLES[:3], SINGLES[:1], []])
@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.05, 10.0])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_item_runs_once_and_every_worker_ends(items: list[str], seconds: float, workers: int) -> None:
    scheduler, nodes = started(items, workers)
    run_all(scheduler, nodes, seconds)
    assert sorted(place for node in nodes for place in node.sent) == list(range(len(items)))
    assert scheduler.tests_finished
    assert all(node.shutting_down for node in nodes) == bool(items)


@pytest.mark.parametrize("seconds", [0.001, 0.05, 10.0])
def test_both_directions_go_to_the_same_worker(seconds: float) -> None:
    scheduler, nodes = started(PAIRS)
    run_all(scheduler, nodes, seconds)
    for node in nodes:
        forward = {place for place in node.sent if place % 2 == 0}
        assert {place + 1 for place in forward} == set(node.sent) - forward


def test_what_a_dead_worker_had_goes_to_another_one() -> None:
    scheduler, nodes = started(SINGLES)
    assert scheduler.remove_node(nodes[0]) == SINGLES[0]
    run_all(scheduler, nodes[1:], 0.05)
    assert sorted(nodes[1].sent) == list(range(1, len(SINGLES)))
