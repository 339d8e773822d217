"""The process that the user started: deals cases out into shards, and reports here what comes back."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.check.cost import dealt
from pytest_probe.errors import DumpError, ProbeError
from pytest_probe.features.cluster.shard import Message, Start, content_of
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import costs_of, sharing_runs
from pytest_probe.plugin.report_results import carried
from pytest_probe.plugin.reproduce import NOT_SAVED, item_command
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import passed, result_of, say, workers_describe_devices
from pytest_probe.reports.results_file import lines_of, results_in
from pytest_probe.reports.running_case import CRASH
from pytest_probe.reports.selected import id_list
from pytest_probe.reports.terminal import count
from pytest_probe.settings import blamed
from pytest_probe.system import archive
from pytest_probe.system.files import temporary_path

if TYPE_CHECKING:
    from pytest_probe.features.cluster.ray_pool import RayPool
    from pytest_probe.plugin.reporting import Reporting


class SavedFiles:
    """The files of the case that a shard runs. They have their names once the case has its result."""

    def __init__(self) -> None:
        self._arriving: dict[Path, Path] = {}
        self._failure = ""

    def add(self, path: Path, piece: bytes) -> None:
        temporary = self._arriving.setdefault(path, temporary_path(path))
        if not self._failure:
            with self._noted(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("ab") as file:
                    file.write(piece)

    def save(self) -> str:
        """Give the files their names. Says why not all have them, as `save` of a process that sees the folder."""
        for path, temporary in self._arriving.items():
            if not self._failure:
                with self._noted(path):
                    temporary.replace(path)
        failure = self._failure
        self.drop()
        return failure

    def drop(self) -> None:
        """Remove the files of a case that has no result."""
        for temporary in self._arriving.values():
            with suppress(OSError):
                temporary.unlink()
        self._arriving, self._failure = {}, ""

    @contextmanager
    def _noted(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failure = f"{NOT_SAVED}{path} cannot be written ({error.strerror})"


# So that no device waits long for others, and a lost one has not much to run again, each gets several shards, of so
# many estimated milliseconds at least: a process takes seconds to start.
_SHARDS_A_DEVICE, _SHARD_COST = 8, 60_000.0
# How often a shard is tried that does not start, and a case whose process or node is lost.
_TRIES = 3
# Seconds between two lines about a cluster whose devices are all others'.
_BUSY_NOTICE = 60.0


class _Shard(Struct):
    """What waits or runs: node ids of items, the ids of the nodes where they were tried in vain, "" for one that nobody
    knows, and how many of those times the process or node was lost while the first item ran. Once it has begun, the id
    and the name of its node; once it has described its device, what is noted of its results."""

    items: Sequence[str]
    tried: tuple[str, ...] = ()
    losses: int = 0
    place: str = ""
    node: str = ""
    remark: str | None = None
    files: SavedFiles = field(default_factory=SavedFiles)


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
        # The shards by their numbers, and the ids of nodes where one has described a device.
        self._shards: dict[int, _Shard] = {}
        self._usable = set[str]()
        # Why cases did not run; and when it is time to say that none can run yet.
        self._trouble = ""
        self._notice = 0.0

    def devices(self) -> list[dict[str, str]]:
        """What a device of the cluster is, once a framework. Raises UsageError where none is usable."""
        if self._devices is None:
            self.pool.begin(_start(self._probe))
            self._submit(_Shard(()))
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
            self._drop()
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
            self._submit(_Shard(shard))
        while self._shards and not (session.shouldstop or session.shouldfail):
            self._listen()
        if self._waiting and not (session.shouldstop or session.shouldfail):
            left = f"{count(len(self._waiting), 'case')} did not run: {id_list(list(self._waiting))}"
            self._reporting.trouble(f"{self._trouble}; {left}")
            session.shouldstop = left

    def _submit(self, shard: _Shard) -> None:
        self._notice = time.monotonic() + _BUSY_NOTICE
        try:
            self._shards[self.pool.submit(shard.items, [node for node in shard.tried if node])] = shard
        except ConnectionError as error:
            self._lose_head(error)

    def _lose_head(self, error: ConnectionError) -> None:
        self._trouble = str(error)
        self._drop()

    def _drop(self) -> None:
        """Expect no more of the shards."""
        for shard in self._shards.values():
            shard.files.drop()
        self._shards.clear()

    def _listen(self) -> None:
        """Take in what shards say, and how they end. Raises UsageError where no node has a device."""
        try:
            said, ended = self.pool.news()
        except ConnectionError as error:
            said, ended = [], []
            self._lose_head(error)
        for number, place, node, message in said:
            if (shard := self._shards.get(number)) is not None:  # others have what a lost one had left
                shard.place, shard.node = place, node
                self._hear(shard, message)
        for number, why, lost in ended:
            if (shard := self._shards.pop(number, None)) is not None:
                self._ended(shard, why, lost)
        if self._devices is not None:
            return
        if not self._shards:
            raise pytest.UsageError(next(iter(self.pool.refused.values()), self._trouble))
        if time.monotonic() > self._notice and not any(shard.place for shard in self._shards.values()):
            _say("probe: no device of the cluster is free yet; the run goes on when one is")
            self._notice += _BUSY_NOTICE

    def _hear(self, shard: _Shard, message: Message) -> None:
        if isinstance(message, list):
            self._describe(shard, message)
        elif message is not None:
            name, content = message
            if isinstance(content, bytes):
                shard.files.add(Path(name), content)
                return
            notes = [*filter(None, (shard.remark, shard.files.save()))]
            if (item := self._waiting.pop(name, None)) is not None:  # a plugin may have run it again
                self._ran(item, content, notes)

    def _describe(self, shard: _Shard, devices: list[dict[str, str]]) -> None:
        self._usable.add(shard.place)
        self.pool.refused.pop(shard.place, None)
        if self._devices is None:
            self._devices = devices
            self._probe.know_names(None, devices)
            if workers_describe_devices(self._probe):
                try:
                    self._reporting.know_devices(devices)
                except ProbeError as error:  # the run that goes on had others
                    raise pytest.UsageError(blamed(self._config, error)) from None
        self._nodes |= {f"{shard.node} {device}": {"node": shard.node, **device} for device in devices}
        theirs, first = _names(devices), _names(self._devices)
        remark = f"ran on node {shard.node}, whose device is {theirs}; the first is {first}"
        shard.remark = "" if theirs == first else remark

    def _ended(self, shard: _Shard, why: str, lost: bool) -> None:
        """Let others run what a shard has left. The case at which it was lost runs alone then, so that no other one has
        to be run again for it."""
        shard.files.drop()
        left, tried = [item for item in shard.items if item in self._waiting], (*shard.tried, shard.place)
        if not why or (self._devices is not None and not left):
            return
        if shard.place and not lost and shard.place not in self._usable:  # nor would others start there
            if shard.place not in self.pool.refused:
                _say(f"{shard.node} runs no cases: {why}")
            self.pool.refused[shard.place] = why
            self._submit(_Shard(left, shard.tried, shard.losses))
        elif lost and shard.remark is not None:
            if (losses := shard.losses + 1) == _TRIES:
                self._lose(self._waiting.pop(left[0]), why)
            else:
                self._submit(_Shard(left[:1], tried, losses))
            if left[1:]:
                self._submit(_Shard(left[1:]))
        elif len(tried) - shard.losses < _TRIES:
            self._submit(_Shard(left, tried, shard.losses))
        else:
            self._trouble = self._trouble or (why if shard.node in why else f"node {shard.node}: {why}")

    def _lose(self, item: ProbeItem, why: str) -> None:
        """What is said of a case that no process can report."""
        reason = f"its process or node was lost {_TRIES} times while it ran; it is not run again: {why}"
        device = next(iter(self._probe.settings.devices), None)
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", None, "call")
        command = item_command(self._probe, item.dump_path, item.name, item.case.dtype, device)
        verdict = Verdict("error", "", reason, CRASH)
        result = result_of(self._probe, item.portable_id, verdict, device, item.folded)
        say(report, item.dump_path, result, command, device)
        self._report(item, [passed(report, "setup"), report, passed(report, "teardown")])

    def _ran(self, item: ProbeItem, said: Iterable[Mapping[str, Any]], notes: Sequence[str]) -> None:
        hook = self._config.hook
        reports = [hook.pytest_report_from_serializable(config=self._config, data=data) for data in said]
        for report in reports if notes else ():
            if lines := carried(report):
                noted = (replace(each, notes=(*each.notes, *notes)) for each in results_in(lines))
                report.probe_results = lines_of(noted)
        reports[-1].probe_share = item.share
        self._report(item, reports)

    def _report(self, item: ProbeItem, reports: Sequence[pytest.TestReport]) -> None:
        """Hand reports to all that listen, as if the item had run here."""
        hook = self._config.hook
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


def _names(devices: Iterable[Mapping[str, str]]) -> str:
    """The kinds of devices: the kind's name, without the device's number, and the name of the hardware."""
    kinds = (f"{device['device'].partition(':')[0]} ({device.get('hardware', 'of no name')})" for device in devices)
    return ", ".join(dict.fromkeys(kinds))


def _raise_stop(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
