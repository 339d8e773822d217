"""--probe-shard: which part of the items this run has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest

from pytest_probe.check.cost import dealt
from pytest_probe.option_types import Given, Type
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.order import PLACE, costs_of, deselect, sharing_runs
from pytest_probe.plugin.session import ProcessSession

# More shards than any run has cases.
MOST_PARTS = 1_000_000


def shard_of(text: str) -> tuple[int, int] | None:
    """The I and N of "I/N", the I-th of N parts; None for anything else, or N is more than any run has cases."""
    match = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
    number, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    return (number, parts) if 1 <= number <= parts <= MOST_PARTS else None


class Part(Type):
    """The I and N of the I-th of N parts; None for the whole."""

    def read(self, given: Given) -> tuple[int, int] | None:
        found = shard_of(given.text)
        if given.text and found is None:
            raise given.wrong("give I/N, the I-th of N parts, with I from 1 to N, as 1/4")
        return found

    def plain(self, value: tuple[int, int] | None) -> str | None:
        return None if value is None else "/".join(map(str, value))


# The key of a worker's output.
_EMPTY = "probe_nothing_left"


class Shard(Feature):
    # Has it no items, since there are fewer groups than shards?
    _empty = False

    @property
    def traits(self) -> Sequence[Trait]:
        return ("part", "no items") if self._empty else ("part",)

    def select(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Leave the items of this shard. Items that share a run stay together. What another plugin shuffled is dealt
        out as if it had not."""
        assert self.probe.settings.shard is not None
        number, parts = self.probe.settings.shard
        groups, config = sharing_runs(items), session.config
        key = _order(self.probe)
        ordered = sorted(groups, key=lambda group: min(map(key, group)))
        dealt_out = zip(ordered, dealt(costs_of(ordered), parts), strict=True)
        mine = {id(group) for group, part in dealt_out if part == number - 1}
        deselect(config, [item for group in groups if id(group) not in mine for item in group])
        for place, item in enumerate(sorted(items, key=key)):
            item.stash[PLACE] = place
        self._empty = bool(groups) and not mine
        if hasattr(config, "workeroutput"):
            config.workeroutput[_EMPTY] = self._empty
        items[:] = chain.from_iterable(group for group in groups if id(group) in mine)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._empty |= getattr(node, "workeroutput", {}).get(_EMPTY, False)


def _order(probe: ProcessSession) -> Callable[[pytest.Item], tuple[object, ...]]:
    """The order of one run: dump by dump, as collected; then the user's own tests, and then what initialises."""
    given = {path: place for place, path in enumerate(probe.dumps.paths)}
    # Dumps that were not given come after the given ones, by their paths.
    last, in_order = len(given), probe.has("in order")

    def key(item: pytest.Item) -> tuple[object, ...]:
        if not isinstance(item, NoticeItem):
            return False, last + 1, item.nodeid
        late, path = item.initialises and not in_order, item.dump_path
        return late, given.get(path, last), str(path), item.number, item.nodeid

    return key
