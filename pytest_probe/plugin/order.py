"""The order in which items run, and which of them run here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pytest

from pytest_probe.check.cost import CASE, Costs
from pytest_probe.plugin.items import NoticeItem, ProbeItem
from pytest_probe.plugin.session import Probe


def arrange(probe: Probe, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what this process runs, in its order. Each process of a run, and each machine of several shards, finds the
    same: nothing that is measured decides."""
    if probe.settings.unique:
        from pytest_probe.features.unique.plugin import fold

        items[:] = fold(probe, config, items)
    groups = sharing_runs(items)
    if probe.settings.shard is not None:
        from pytest_probe.features.shard.plugin import keep

        groups = keep(probe, config, groups)
    if runs_beside_others(config):
        given: dict[str, Any] = config.workerinput  # type: ignore[attr-defined]
        groups = costliest_first(groups, given["workercount"] if given.get("probe_split") else 1)
    items[:] = chain.from_iterable(groups)


def sharing_runs(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """Each item where it stands, but those that share a run right behind the first of them."""
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        key = item.run_key if isinstance(item, NoticeItem) else id(item)
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def runs_beside_others(config: pytest.Config) -> bool:
    """Is it a worker of -n? The only one of --probe-isolate keeps the order of the calls."""
    given = getattr(config, "workerinput", {})
    return bool(given) and "probe_isolated" not in given


def costliest_first(groups: Sequence[list[pytest.Item]], runs: int) -> list[list[pytest.Item]]:
    """What takes long starts first, lest one worker is at it when the others are done; in as many runs of equal length
    as there are workers that begin with one each."""
    costs = costs_of(groups)
    places = sorted(range(len(groups)), key=lambda place: -costs[place])
    return [groups[place] for run in range(runs) for place in places[run::runs]]


def costs_of(groups: Iterable[Iterable[pytest.Item]]) -> list[float]:
    """Estimated milliseconds of each group."""
    costs = Costs()
    return [sum(costs.of(item.case) if isinstance(item, ProbeItem) else CASE for item in group) for group in groups]


def deselect(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Count items as deselected. A worker's count reaches the controller when the worker ends."""
    if items:
        config.hook.pytest_deselected(items=items)
    told = getattr(config, "workeroutput", None)
    if told is not None:
        told["probe_deselected"] = told.get("probe_deselected", 0) + len(items)
