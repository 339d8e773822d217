"""Which items this run selected: written where they are collected, compared where a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.features.resume.earlier import Earlier
from pytest_probe.options import NAMED
from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.session import Probe
from pytest_probe.reports.running import FOLDER
from pytest_probe.reports.selected import ITEMS, SelectedItem, id_list, read_items, write_items


def note(probe: Probe, session: pytest.Session) -> None:
    """Write the list of the items, once, though each worker finds the same; a run that goes on compares its own with
    the one that is there. Raises UsageError."""
    config, out = session.config, probe.settings.out
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if out is None or config.option.collectonly or worker.get("workerid", "gw0") != "gw0":
        return
    places = probe.item_places
    listed = [
        SelectedItem(_id(item), places.get(node, place) if places else place, node)
        for place, (node, item) in enumerate((item.nodeid, item) for item in session.items)
    ]
    goes_on = probe.settings.resume and (out / ITEMS).exists()
    try:
        # Of a worker's list the process that reports makes use.
        write_items(out / FOLDER if goes_on else out, listed)
    except OSError as error:
        wanted = f"it cannot be written to: {error.strerror}"
        raise pytest.UsageError(str(SettingsError(NAMED["out"].flag, str(out), wanted))) from None


class Compared:
    """In the process that reports a run that goes on: is what is left what the earlier run did not run? Raises
    UsageError before anything runs."""

    def __init__(self, folder: Path, earlier: Earlier) -> None:
        self._folder = folder
        self._done = earlier.names(earlier.size)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self._compare()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._compare()

    def _compare(self) -> None:
        found = self._folder / FOLDER / ITEMS
        if not found.exists():
            return
        try:
            now = {item.id for item in read_items(found.parent).found}
            left = {item.id for item in read_items(self._folder).found if item.id not in self._done}
        except (OSError, ResultsError) as error:
            raise pytest.UsageError(str(SettingsError(NAMED["resume"].flag, str(self._folder), str(error)))) from None
        found.unlink()
        for ids, words in (
            (left - now, "its run selected {}, and this run does not"),
            (now - left, "this run selects {}, and its run did not"),
        ):
            if ids:
                wanted = f"{words.format(id_list(sorted(ids)))}; give the same selection, or a new folder"
                raise pytest.UsageError(str(SettingsError(NAMED["resume"].flag, str(self._folder), wanted)))


def _id(item: pytest.Item) -> str:
    return str(item.portable_id) if isinstance(item, NoticeItem) else item.nodeid
