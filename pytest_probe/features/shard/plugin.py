"""--probe-shard: which part of the items this run has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import pytest

from pytest_probe.check.cost import dealt
from pytest_probe.model.case import DIRECTIONS
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import costs_of, deselect
from pytest_probe.plugin.session import Probe


def keep(probe: Probe, config: pytest.Config, groups: Sequence[list[pytest.Item]]) -> list[list[pytest.Item]]:
    """The groups of this shard, the others deselected. Items that share a run stay together. What another plugin
    shuffled is dealt out as if it had not."""
    assert probe.settings.shard is not None
    number, parts = probe.settings.shard
    order = _Order(probe, groups)
    ordered = sorted(groups, key=lambda group: min(map(order.key, group)))
    mine = {
        id(group) for group, part in zip(ordered, dealt(costs_of(ordered), parts), strict=True) if part == number - 1
    }
    kept = [group for group in groups if id(group) in mine]
    deselect(config, [item for group in groups if id(group) not in mine for item in group])
    places = enumerate(sorted(chain.from_iterable(groups), key=order.key))
    # Where there are fewer groups than shards, a run of nothing is as it should be.
    probe.use_shard({item.nodeid: place for place, item in places}, empty=bool(groups) and not kept)
    if hasattr(config, "workeroutput"):
        config.workeroutput["probe_nothing_left"] = probe.empty_shard
    return kept


class _Order:
    """The order of the calls: dump by dump, record by record, forward before backward; then the user's own tests."""

    def __init__(self, probe: Probe, groups: Iterable[Iterable[pytest.Item]]) -> None:
        self._dumps = {path: place for place, path in enumerate(probe.dumps.paths)}
        dumps = {
            id(item.case.dump): item.case.dump for group in groups for item in group if isinstance(item, ProbeItem)
        }
        self._records = {id(record): place for dump in dumps.values() for place, record in enumerate(dump.records)}

    def key(self, item: pytest.Item) -> tuple[object, ...]:
        """Dumps that were not given come after the given ones, by their paths."""
        last = len(self._dumps)
        if not isinstance(item, ProbeItem):
            return last + 1, item.nodeid
        case, path = item.case, item.dump_path
        direction = DIRECTIONS.index(case.direction)
        return self._dumps.get(path, last), str(path), self._records[id(case.record)], direction, item.nodeid
