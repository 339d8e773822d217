"""The process that collects and reports: deals cases out to hosts, and makes this run's reports of what comes back."""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.errors import OutOfMemory
from pytest_probe.features.cluster.messages import Death, ItemReports, NodeLost, Outcome, Place, Ready, RunFacts
from pytest_probe.features.cluster.sending import Dealing, Sending, sizes_of, start_of
from pytest_probe.model.collective import RankPool
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import costs_of, sharing_runs
from pytest_probe.plugin.reproduce import item_command
from pytest_probe.plugin.session import Probe
from pytest_probe.plugin.xdist import DEATHS_OF_A_CASE, IDLE_DEATHS, passed, result_of, say, workers_describe_devices
from pytest_probe.reports.results_file import RUN
from pytest_probe.reports.running import CRASH, Deaths, verdict_on
from pytest_probe.reports.terminal import count

# What a host has at a time: one part runs, and the next is there when it ends.
_PARTS_PER_HOST = 2
# Seconds between two looks at the clock while nothing happens.
_WAIT_SECONDS = 1.0
# Seconds between two lines about a cluster whose devices are all others'.
_BUSY_NOTICE_SECONDS = 60.0
# How many cases that did not run are named.
_MAX_NAMED = 20


if TYPE_CHECKING:
    from pytest_probe.features.cluster.ray_pool import RayPool
    from pytest_probe.plugin.reporting import Reporting


class HostState(Struct):
    """What the controller knows of a host. parts are the groups that it has, by their numbers, in its order; lost_with
    is the number of the part that ran when it was lost."""

    place: Place
    ready: bool = False
    informed: bool = False
    device: str | None = None
    devices: list[dict[str, str]] = field(default_factory=list)
    parts: dict[int, list[int]] = field(default_factory=dict)
    idle_deaths: int = 0
    gone: bool = False
    lost_with: int | None = None

    def lose(self, part: int | None) -> bool:
        """The host is lost, and with it this part; did that part run? Others follow one by one, and nothing is sent to
        it meanwhile."""
        if self.ready:
            self.ready = self.informed = False
            self.lost_with = min(self.parts, default=None)
        return part is not None and part == self.lost_with


class Cluster:
    """A plugin that replaces pytest's loop over items. shipped are the dumps whose files nodes cannot read."""

    def __init__(self, probe: Probe, pool: RayPool, shipped: Collection[Path]) -> None:
        self._probe = probe
        self._config = probe.config
        self._pool = pool
        self._sending = Sending(probe, shipped)
        self._deaths = Deaths(probe.running_folder)
        self._losses: Counter[int] = Counter()
        self._devices: list[dict[str, str]] = []
        self._number = 0
        places = pool.begin(start_of(probe))
        self._hosts = {number: HostState(place) for number, place in enumerate(places)}

    def devices(self) -> list[dict[str, str]]:
        """What the first host that is ready says of its device, once a framework. Raises UsageError where none is
        usable."""
        noticed = time.monotonic()
        while not self._devices and not self._is_left_alone:
            self._wait()
            if time.monotonic() - noticed > _BUSY_NOTICE_SECONDS:
                noticed = time.monotonic()
                _say("probe: no device of the cluster is free yet; the run goes on when one is")
        return self._devices

    @property
    def ranks(self) -> RankPool:
        """Processes of ranks on the devices of its hosts."""
        return self._pool.ranks

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest's own loop says so
        remote = [item for item in session.items if isinstance(item, ProbeItem) and item.question is None]
        sent = frozenset(remote)
        # Tests of the user's own, questions, and what is wrong with dumps as a whole, run here.
        here = [item for item in session.items if item not in sent]
        for item, after in pairwise([*here, None]):
            assert item is not None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            _raise_stop(session)
        try:
            if remote:
                self._run_there(session, remote)
        finally:
            # What all hosts have said of their devices, each once, with its node.
            nodes = {str(device): device for host in self._hosts.values() for device in host.devices}
            self._reporting.know(nodes=list(nodes.values()))
            self._pool.end()
        _raise_stop(session)
        return True

    def pytest_unconfigure(self) -> None:
        self._pool.end()

    @property
    def _reporting(self) -> Reporting:
        found: Reporting = self._config.pluginmanager.getplugin("probe-reporting")
        return found

    @property
    def _is_left_alone(self) -> bool:
        """Has no host remained?"""
        return all(host.gone for host in self._hosts.values())

    def _run_there(self, session: pytest.Session, items: Sequence[ProbeItem]) -> None:
        self._groups: list[list[ProbeItem]] = sharing_runs(items)  # type: ignore[assignment]
        self._sizes = sizes_of(self._groups)
        self._dealing = Dealing(costs_of(self._groups), self._sizes)
        self._waiting = len(self._groups)
        # Groups that need more memory than any node has are skipped.
        largest = max(self._pool.memory.values(), default=0.0)
        for group in self._dealing.drop(larger_than=largest):
            for item in self._groups[group]:
                reason = (
                    f"checking the call takes about {self._sizes[group] / 2**30:.3g} GiB, and no node of the cluster "
                    f"has more than {largest / 2**30:.3g} GiB"
                )
                self._decide(item, Verdict("skip", "", reason, OutOfMemory.kind), None)
            self._waiting -= 1
        if workers_describe_devices(self._probe) and self._waiting:
            self._reporting.know_devices(self.devices())
        while self._waiting and not (session.shouldstop or session.shouldfail):
            if self._is_left_alone:
                items = [item for group in self._dealing.left() for item in self._groups[group]]
                named = "".join(f"\n  {item.nodeid}" for item in items[:_MAX_NAMED])
                more = f"\n  and {len(items) - _MAX_NAMED} more" if len(items) > _MAX_NAMED else ""
                self._reporting.trouble(
                    f"no host of the cluster is left; {count(len(items), 'case')} did not run:{named}{more}"
                )
                session.shouldstop = "no host of the cluster is left"
                break
            # Work for all who can take more: for those first who have least.
            for ahead in range(_PARTS_PER_HOST):
                for number, host in self._hosts.items():
                    if host.ready and not host.gone and len(host.parts) <= ahead and self._dealing:
                        self._send(number, host)
            self._wait()

    def _decide(self, item: ProbeItem, verdict: Verdict, device: str | None) -> None:
        """What the controller says of a case that no process can."""
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", None, "call")
        command = item_command(self._probe, item.dump_path, item.name, item.case.dtype, device)
        result = result_of(self._probe, item.portable_id, verdict, device, item.folded)
        say(report, item.dump_path, result, command, device)
        self._report(item, [passed(report, "setup"), report, passed(report, "teardown")])

    def _report(self, item: ProbeItem, reports: Sequence[pytest.TestReport]) -> None:
        """Hand reports to all that listen, as if the item had run here."""
        hook = self._config.hook
        if reports:  # none of an item that a plugin ran without reporting it
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        if reports:
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _wait(self) -> None:
        for number, part, what in self._pool.wait(_WAIT_SECONDS):
            host = self._hosts[number]
            if isinstance(what, Ready) and what.trouble:
                host.gone = True
                if not self._devices:
                    raise pytest.UsageError(what.trouble)
                _say(f"{host.place.name} runs no cases: {what.trouble.splitlines()[0]}")
            elif isinstance(what, Ready):
                host.ready, host.device = True, what.name
                host.devices = [{"node": host.place.name, **device} for device in what.devices]
                if not self._devices:
                    self._probe.know_names(what.name, what.devices)
                    self._devices = [dict(device) for device in what.devices]
            elif isinstance(what, NodeLost):
                self._lost(number, host, part)
            elif part is not None:
                self._ended(host, host.parts.pop(part), what)

    def _send(self, number: int, host: HostState) -> None:
        # Bytes that are left of its node's memory: each host there may run the largest of what it has.
        beside = [each.parts.values() for each in self._hosts.values() if each.place.node == host.place.node]
        taken = (max((self._sizes[group] for part in parts for group in part), default=0) for parts in beside)
        room = self._pool.memory[host.place.node] - sum(taken)
        groups = self._dealing.take(sum(not each.gone for each in self._hosts.values()), room)
        if not groups:
            return
        items = [item for group in groups for item in self._groups[group]]
        if not host.informed:
            host.informed = True
            # Where a node has another device than the first that was ready, each of its results says so.
            theirs, first = _names(host.devices), _names(self._devices)
            remark = f"ran on node {host.place.name}, whose device is {theirs}; the first is {first}"
            self._pool.tell(number, replace(self._what_is_known(), remark="" if theirs == first else remark))
        self._number += 1
        host.parts[self._number] = groups
        cases = pickle.dumps([self._sending.case(item) for item in items], pickle.HIGHEST_PROTOCOL)
        files = {name: path for item in items for name, path in self._sending.files(item)}
        self._pool.send(number, self._number, cases, files.items())

    def _what_is_known(self) -> RunFacts:
        out = self._probe.settings.out
        run = None if out is None else out / RUN
        given = {key: value for feature in self._probe.features for key, value in feature.for_workers().items()}
        return RunFacts(given, None if run is None else (run, run.read_bytes()))

    def _ended(self, host: HostState, groups: list[int], outcome: Outcome) -> None:
        """A host has run a part, or its process died of it."""
        items = [(group, item) for group in groups for item in self._groups[group]]
        left = dict(enumerate(items))
        for content in outcome.ran:
            ran: ItemReports = pickle.loads(content)
            group, item = left.pop(ran.item)
            out = self._probe.settings.out
            for name, written in ran.files.items():
                assert out is not None
                path = out / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(written)
            hook = self._config.hook
            reports = [hook.pytest_report_from_serializable(config=self._config, data=data) for data in ran.reports]
            for last in reports[-1:]:
                last.probe_share = item.share
            self._report(item, reports)
        if outcome.death is not None:
            self._died(host, left, outcome.death)
        for group in groups:
            # Items of a group with a result do not go out again.
            self._groups[group] = [item for where, item in left.values() if where == group]
        again = [group for group in groups if self._groups[group]]
        self._waiting -= len(groups) - len(again)
        self._dealing.give_back(reversed(again), alone=False)

    def _died(self, host: HostState, left: dict[int, tuple[int, ProbeItem]], death: Death) -> None:
        """Whose death was it? What had not begun runs again, and so does, once, what was killed from outside."""
        if death.said:
            _say(death.said)
        running = death.running
        found = next((number for number, (_, item) in left.items() if item.nodeid == running.item), None)
        if found is None:
            host.idle_deaths += 1
            host.gone = host.idle_deaths > IDLE_DEATHS
            return
        host.idle_deaths = 0
        _, item = left[found]
        times = self._deaths.add(running) if death.ending.killed else 1
        if death.ending.killed and times < DEATHS_OF_A_CASE:
            return
        del left[found]
        self._decide(item, verdict_on(running, death.ending, times=times, timed_out=death.timed_out), host.device)

    def _lost(self, number: int, host: HostState, part: int | None) -> None:
        """A host has gone: its cases go to others, once."""
        ran = host.lose(part)
        if part is not None:
            again = []
            for group in host.parts.pop(part):
                self._losses[group] += ran
                if not ran or self._losses[group] < DEATHS_OF_A_CASE:
                    again.append(group)
                    continue
                self._waiting -= 1
                for item in self._groups[group]:
                    reason = "the node went away twice while it had this case, which is not run again"
                    self._decide(item, Verdict("error", "", reason, CRASH), host.device)
            self._dealing.give_back(again, alone=True)
        if not host.parts:
            host.gone = part is None or not self._pool.replace(number)


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
