"""A plugin of both processes of a shard, the one that Ray started and its worker: they have the run's settings, and the
worker collects the shard's cases alone."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import ProbeError
from pytest_probe.features.cluster.shard import Start
from pytest_probe.plugin.device_reports import ASKED
from pytest_probe.plugin.session import STATE, ProcessSession, registry_of
from pytest_probe.settings import blamed
from pytest_probe.system.process import die_with_parent


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    # What failed last time is known to the process that reports, and may be another thing here.
    config.option.lf = False


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    given = _given(config)
    if ASKED in given:  # the worker
        die_with_parent()
    start: Start = pickle.loads(given["probe_start"])
    try:
        probe = ProcessSession(config, start.settings, registry_of(config, start.settings), given["probe_collected"])
    except ProbeError as error:
        raise pytest.UsageError(blamed(config, error)) from None
    config.stash[STATE] = probe
    # Nobody knows whether this node sees --probe-out: its files go with the results.
    probe.written_at = lambda path: written_at(start.folder, Path(given["probe_files"]), path)


def written_at(folder: str, into: Path, path: Path) -> Path:
    """Where a file is written in place of its path, which starts at the folder of the run if it is relative."""
    whole = Path(os.path.normpath(Path(folder, path)))
    return into / whole.relative_to(whole.anchor)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """An item's last report says where the files are that it wrote: they may be larger than what execnet sends."""
    report = yield
    into = Path(_given(item.config)["probe_files"])
    if call.when == "teardown" and into.exists():
        report.probe_files = str(into.rename(into.with_name(uuid.uuid4().hex)))  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.args[:] = _given(session.config)["probe_collected"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # In the order of the shard: where it is lost, its first item without a result was the one that ran.
    found = {item.nodeid: item for item in items}
    items[:] = [found[each] for each in _given(config)["probe_items"] if each in found]


def _given(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = config.workerinput
    return found
