"""The order in which items run, which of them run here, and the list of the selected ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pytest

from pytest_probe.check.cost import CASE, Costs
from pytest_probe.errors import SettingsError
from pytest_probe.options import NAMED
from pytest_probe.plugin.items import NoticeItem, ProbeItem
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.running_case import FOLDER
from pytest_probe.reports.selected import ITEMS, SelectedItem, write_items

# The place of an item in the whole run, where this is a part of it.
PLACE = pytest.StashKey[int]()


def arrange(probe: ProcessSession, session: pytest.Session, items: list[pytest.Item]) -> None:
    """Leave what this process runs, in its order. Each process of a run, and each machine of several shards, finds the
    same: nothing that is measured decides."""
    for feature in probe.features:
        feature.select(session, items)
    groups = sharing_runs(items)
    given: dict[str, Any] = getattr(session.config, "workerinput", {})
    if not given and not probe.has("in order"):
        # A fault of a step is found first.
        groups.sort(key=lambda group: isinstance(group[0], NoticeItem) and group[0].initialises)
    if given and not probe.has("in order"):
        # What takes long starts first, lest one worker is at it when the others are done; in as many runs of equal
        # length as there are workers that begin with one each.
        runs, costs = given["workercount"] if given.get("probe_split") else 1, costs_of(groups)
        places = sorted(range(len(groups)), key=lambda place: -costs[place])
        groups = [groups[place] for run in range(runs) for place in places[run::runs]]
    items[:] = chain.from_iterable(groups)


def sharing_runs(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The items in their order, but items that share a run follow the first of them."""
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        key = item.run_key if isinstance(item, NoticeItem) else id(item)
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def costs_of(groups: Iterable[Iterable[pytest.Item]]) -> list[float]:
    """Estimated milliseconds of each group."""
    costs = Costs()
    return [sum(costs.of(item.case) if isinstance(item, ProbeItem) else CASE for item in group) for group in groups]


def deselect(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Count items as deselected. A worker's count reaches the controller when the worker ends."""
    if items:
        config.hook.pytest_deselected(items=items)
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["probe_deselected"] = output.get("probe_deselected", 0) + len(items)


def write_selected(probe: ProcessSession, session: pytest.Session) -> None:
    """Write the list of the items, once, though each worker finds the same; a run that goes on compares its own with
    the one that is there. Raises UsageError."""
    config, out = session.config, probe.settings.out
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if out is None or config.option.collectonly or worker.get("workerid", "gw0") != "gw0":
        return
    listed = [
        SelectedItem(
            str(item.portable_id) if isinstance(item, NoticeItem) else item.nodeid,
            item.stash.get(PLACE, place),
            item.nodeid,
        )
        for place, item in enumerate(session.items)
    ]
    resumes = probe.has("resumes") and (out / ITEMS).exists()
    try:
        # Of a worker's list the process that reports makes use.
        write_items(out / FOLDER if resumes else out, listed)
    except OSError as error:
        wanted = f"it cannot be written to: {error.strerror}"
        raise pytest.UsageError(str(SettingsError(NAMED["out"].flag, str(out), wanted))) from None
