"""The process that the user started: deals cases out into shards, and reports here what comes back."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pytest_probe.check.cost import dealt
from pytest_probe.errors import DumpError, ProbeError
from pytest_probe.features.cluster.shard import Start, content_of
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import costs_of, sharing_runs
from pytest_probe.plugin.report_results import carried
from pytest_probe.plugin.reproduce import NOT_SAVED
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import workers_describe_devices
from pytest_probe.reports.results_file import lines_of, results_in
from pytest_probe.reports.selected import id_list
from pytest_probe.reports.terminal import count
from pytest_probe.settings import blamed
from pytest_probe.system import archive
from pytest_probe.system.files import write_whole

if TYPE_CHECKING:
    from pytest_probe.features.cluster.ray_pool import RayPool
    from pytest_probe.plugin.reporting import Reporting

# So that no device waits long for others, and a lost one has not much to run again, each gets several shards, of so
# many estimated milliseconds at least: a process takes seconds to start.
_SHARDS_A_DEVICE, _SHARD_COST = 8, 60_000.0


class Cluster:
    """A plugin that replaces pytest's loop over items."""

    def __init__(self, probe: ProcessSession, pool: RayPool) -> None:
        self.pool = pool
        self._probe = probe
        self._config = probe.config
        self._waiting: dict[str, ProbeItem] = {}
        # What the first shard says of its device (None: not yet), and what all say, each device once, with its node.
        self._devices: list[dict[str, str]] | None = None
        self._nodes: dict[str, dict[str, str]] = {}
        # The shards that wait or run, by their numbers, and the nodes where they have described a device.
        self._shards: dict[int, Sequence[str]] = {}
        self._described = set[tuple[int, str]]()
        # Why nodes run no cases; and why cases did not run.
        self._refused: dict[str, str] = {}
        self._trouble = ""

    def devices(self) -> list[dict[str, str]]:
        """What a device of the cluster is, once a framework. Raises UsageError where none is usable."""
        if self._devices is None:
            self.pool.begin(_start(self._probe))
            self._submit(())
        while self._devices is None:
            self._listen()
        return self._devices

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest's own loop says so
        remote = [item for item in session.items if isinstance(item, ProbeItem) and item.question is None]
        sent = frozenset(remote)
        # Tests of the user's own, questions, and what is wrong with dumps as a whole, run here.
        here = [item for item in session.items if item not in sent]
        self.pool.begin(_start(self._probe))
        for item, after in pairwise([*here, None]):
            assert item is not None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            _raise_stop(session)
        try:
            self._run_there(session, remote)
        finally:
            self._reporting.know(nodes=list(self._nodes.values()))
            hardware = {each["node"]: each.get("hardware", "unknown") for each in self._nodes.values()}
            if len(set(hardware.values())) > 1:
                listed = ", ".join(f"{name} on node {node}" for node, name in hardware.items())
                self._reporting.remark(f"cases ran on different devices: {listed}")
            self.pool.end()
        _raise_stop(session)
        return True

    def pytest_unconfigure(self) -> None:
        self.pool.end()

    @property
    def _reporting(self) -> Reporting:
        found: Reporting = self._config.pluginmanager.getplugin("probe-reporting")
        return found

    def _run_there(self, session: pytest.Session, items: Sequence[ProbeItem]) -> None:
        self.pool.free_ranks()
        self._waiting = {item.nodeid: item for item in items}
        groups = sharing_runs(items)
        costs = costs_of(groups)
        shards: dict[int, list[str]] = {}
        for part, group in zip(dealt(costs, shards_for(sum(costs), self.pool.devices)), groups, strict=True):
            shards.setdefault(part, []).extend(item.nodeid for item in group)
        for shard in shards.values():
            self._submit(shard)
        while self._shards and not (session.shouldstop or session.shouldfail):
            self._listen()
        if self._waiting and not (session.shouldstop or session.shouldfail):
            left = f"{count(len(self._waiting), 'case')} did not run: {id_list(list(self._waiting))}"
            self._reporting.trouble(f"{self._trouble}; {left}")
            session.shouldstop = left

    def _submit(self, items: Sequence[str]) -> None:
        self._shards[self.pool.submit(items)] = items

    def _listen(self) -> None:
        """Take in what shards say, and how they end. Raises UsageError where no node has a device."""
        said, ended = self.pool.news()
        for number, place, node, message in said:
            if isinstance(message, list):
                self._described.add((number, place))
                self._describe(node, message)
            elif (item := self._waiting.pop(message[0], None)) is not None:  # a node was lost behind its result
                self._ran(item, message[1])
        for number, place, node, why in ended:
            items = self._shards.pop(number)
            if why and place and (number, place) not in self._described:
                if self._refused.setdefault(place, why) is why:
                    _say(f"{node} runs no cases: {why}")
                self.pool.refuse(place)
                self._submit(items)
            elif why:
                self._trouble = self._trouble or (f"node {node}: {why}" if node else why)
        if not self._shards and self._devices is None:
            raise pytest.UsageError(next(iter(self._refused.values()), self._trouble))

    def _describe(self, node: str, devices: list[dict[str, str]]) -> None:
        if self._devices is None:
            self._devices = devices
            self._probe.know_names(None, devices)
            if workers_describe_devices(self._probe):
                try:
                    self._reporting.know_devices(devices)
                except ProbeError as error:  # the run that goes on had others
                    raise pytest.UsageError(blamed(self._config, error)) from None
        self._nodes |= {f"{node} {device}": {"node": node, **device} for device in devices}

    def _ran(self, item: ProbeItem, said: Iterable[Mapping[str, Any]]) -> None:
        hook = self._config.hook
        reports = [hook.pytest_report_from_serializable(config=self._config, data=data) for data in said]
        # One that its process died of has none.
        files: Mapping[str, bytes] = vars(reports[-1]).pop("probe_files", {})
        note, path = "", Path()
        try:
            for path in map(Path, files):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, files[str(path)])
        except OSError as error:  # as `save` says it, in a process that sees the folder
            note = f"{NOT_SAVED}{path} cannot be written ({error.strerror})"
        for report in reports if note else ():
            if lines := carried(report):
                report.probe_results = lines_of(replace(each, notes=(*each.notes, note)) for each in results_in(lines))
        reports[-1].probe_share = item.share
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def shards_for(cost: float, devices: int) -> int:
    """How many shards cases of this estimated cost become."""
    return int(min(max(devices, cost / _SHARD_COST), _SHARDS_A_DEVICE * devices))


def _start(probe: ProcessSession) -> Start:
    """What processes begin with, from this process's configuration."""
    config = probe.config
    pytests = {key: value for key, value in os.environ.items() if key.startswith("PYTEST_")}
    # What pytest-xdist would send its workers, with what other plugins would add.
    given: dict[str, Any] = {"testrunuid": uuid.uuid4().hex, "mainargv": list(sys.argv)}
    node = SimpleNamespace(workerinput=given, config=config, gateway=None)
    config.hook.pytest_configure_node(node=node)
    given |= {key: value for feature in probe.features for key, value in feature.for_workers().items()}
    return Start(
        tuple(map(str, config.invocation_params.args)),
        str(config.invocation_params.dir),
        tuple(filter(None, sys.path)),
        tuple(map(address, probe.dumps.known)),
        {**pytests, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
        # Only the process that reports resumes an earlier run.
        replace(probe.settings, values={**probe.settings.values, "resume": False}),
        given,
        {path: content_of(path) for path in _read(probe)},
    )


def _read(probe: ProcessSession) -> list[str]:
    """The dumps that the run reads, and their folders of tensors."""
    paths = set[Path]()
    for path in probe.dumps.known:
        with suppress(DumpError):
            dump = probe.dumps.read(path)
            paths.add(dump.path)
            if probe.settings.inputs not in ("generated", "exact") and archive.split(dump.path) is None:
                paths.update((*dump.data_dirs, *dump.gradient_dirs))
    return [str(path) for path in paths if archive.is_file(path) or path.is_dir()]


def _say(text: str) -> None:
    """Print to stderr, as a worker on this machine would."""
    if sys.__stderr__ is not None:
        print(text, file=sys.__stderr__, flush=True)


def _raise_stop(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
