"""The process of a shard: pytest, which runs the items that the controller named.

shard.py starts it as `python -m pytest_probe.features.cluster.worker PIPE` with the number of a pipe.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.errors import ProbeError
from pytest_probe.features.cluster.shard import Start, versions
from pytest_probe.plugin.device_reports import Described
from pytest_probe.plugin.session import STATE, ProcessSession, registry_of
from pytest_probe.settings import blamed
from pytest_probe.system.process import die_with_parent


def main() -> int:
    die_with_parent()
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    pipe.send(versions())
    start: Start = pipe.recv()
    return int(pytest.main([*start.args], plugins=[_Worker(pipe, start)]))


class _Worker:
    """A plugin that lets pytest run these items alone, and hands over their reports."""

    def __init__(self, pipe: Connection[Any, Any], start: Start) -> None:
        self._pipe, self._start = pipe, start
        self._into = Path(start.worker["probe_files"])
        self._reports: list[pytest.TestReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        early_config.workerinput, early_config.workeroutput = dict(self._start.worker), {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        # The controller reports. Not by -p no:terminal, without which pytest does not know -v.
        config.pluginmanager.unregister(config.pluginmanager.getplugin("terminal"))
        config.option.usepdb = False
        # What failed last time is known to the controller, and may be another thing here.
        config.option.lf = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        settings = self._start.settings
        try:
            probe = ProcessSession(config, settings, registry_of(config, settings), self._start.collected)
        except ProbeError as error:
            raise self._refused(config, error) from None
        config.stash[STATE] = probe
        # Nobody knows whether this node sees --probe-out: its files go with the results.
        probe.written_at = self._written_at

    def _written_at(self, path: Path) -> Path:
        whole = Path(os.path.normpath(Path(self._start.folder, path)))
        return self._into / whole.relative_to(whole.anchor)

    def _refused(self, config: pytest.Config, error: ProbeError) -> pytest.UsageError:
        self._pipe.send(Described(trouble=blamed(config, error)))
        return pytest.UsageError(str(error))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say what the device is, before anything is collected, which is dumps alone."""
        probe = session.config.stash[STATE]
        try:
            described = Described(probe.device, probe.described())
            _ = probe.others  # one that this node cannot read
        except ProbeError as error:
            raise self._refused(session.config, error) from None
        self._pipe.send(described)
        session.config.args[:] = self._start.collected

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            print(report.longreprtext, file=sys.__stderr__, flush=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[each] for each in self._start.items if each in found]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        found = yield
        config, reports, self._reports = item.config, self._reports, []
        serialised = [config.hook.pytest_report_to_serializable(config=config, report=each) for each in reports]
        # By value: the pickler of connections hands tensors over by shared memory, which ends at this node.
        self._pipe.send((item.nodeid, pickle.dumps((serialised, self._taken()), pickle.HIGHEST_PROTOCOL)))
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
            self._pipe.send(None)

    def _taken(self) -> dict[str, bytes]:
        """The files that this item wrote, by the paths where they belong."""
        found = {}
        for path in self._into.rglob("*"):
            if path.is_file():
                found[f"/{path.relative_to(self._into).as_posix()}"] = path.read_bytes()
                path.unlink()
        return found


if __name__ == "__main__":
    sys.exit(main())
