"""The process that collects and reports: deals cases out into shards, and reports here what comes back."""

from __future__ import annotations

import os
import pickle
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import inputs
from pytest_probe.check.cost import ByShapes, dealt
from pytest_probe.errors import DumpError, OutOfMemory, ProbeError, RecordError
from pytest_probe.features.cluster.shard import Died, Message, Start, content_of
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin.device_reports import Described
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.order import costs_of, sharing_runs
from pytest_probe.plugin.report_results import carried
from pytest_probe.plugin.reproduce import NOT_SAVED, item_command
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import DEATHS_OF_A_CASE, passed, result_of, say, workers_describe_devices
from pytest_probe.reports.results_file import lines_of, results_in
from pytest_probe.reports.running_case import CRASH
from pytest_probe.reports.terminal import count
from pytest_probe.settings import blamed
from pytest_probe.system import archive
from pytest_probe.system.files import write_whole

if TYPE_CHECKING:
    from pytest_probe.features.cluster.ray_pool import RayPool, Said
    from pytest_probe.plugin.reporting import Reporting

# So that no device waits long for others, each gets several shards, of so many estimated milliseconds at least: a
# process takes seconds to start.
_SHARDS_A_DEVICE, _SHARD_COST = 8, 60_000.0
# Seconds between two looks at what became of shards while nothing comes, and how many such looks there are between two
# lines about a cluster whose devices are all others'.
_WAIT_SECONDS, _BUSY_NOTICE = 1.0, 60
# How often a shard is tried in which no case began.
_TRIES = 4
# How many cases that did not run are named.
_MAX_NAMED = 20
# Bytes from which on a case is decoded itself: others of its shapes may have been recorded in narrower dtypes.
_LARGE = 2**30


class _Shard(Struct, frozen=True):
    """What a shard runs, on a node that is not avoided where there is one. tries counts the ones before it without a
    case, failed is why the last of them did not."""

    items: tuple[str, ...]
    memory: int
    avoided: frozenset[str] = frozenset()
    tries: int = 0
    failed: str = ""


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
        # The shards that wait or run, by their numbers; the node of each, and what is noted of its results.
        self._shards: dict[int, _Shard] = {}
        self._places: dict[int, str] = {}
        self._remarks: dict[int, str] = {}
        # Nodes that run no cases, by their ids, and why; and how often a case was lost with its process.
        self._refused: dict[str, str] = {}
        self._losses = Counter[str]()
        self._trouble = ""
        # What processes wrote to stderr: each text once, since others die of the same.
        self._printed = set[str]()
        self._quiet, self._looks_at = 0, 0.0

    def devices(self) -> list[dict[str, str]]:
        """What a device of the cluster is, once a framework. Raises UsageError where none is usable."""
        if self._devices is None:
            self.pool.begin(_start(self._probe))
            self._submit(_Shard((), 0))
        while self._devices is None and self._goes_on():
            pass
        return self._devices or []

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
        groups: list[list[ProbeItem]] = sharing_runs(items)  # type: ignore[assignment]
        sizes, room, fitting = _sizes_of(groups), self.pool.memory, []
        for group, size in zip(groups, sizes, strict=True):
            if size <= room:
                fitting.append((group, size))
                continue
            reason = (
                f"checking the call takes about {size / 2**30:.3g} GiB, and no node of the cluster has more than "
                f"{room / 2**30:.3g} GiB"
            )
            for item in group:
                self._decide(item.nodeid, Verdict("skip", "", reason, OutOfMemory.kind), None)
        for shard in shards_of(fitting, self.pool.share, self.pool.at_once):
            self._submit(shard)
        while self._waiting and not (session.shouldstop or session.shouldfail) and self._goes_on():
            pass
        if not self._waiting:
            self.pool.finish()
        elif not (session.shouldstop or session.shouldfail):
            left = list(self._waiting)
            named = "".join(f"\n  {each}" for each in left[:_MAX_NAMED])
            more = f"\n  and {len(left) - _MAX_NAMED} more" if len(left) > _MAX_NAMED else ""
            self._reporting.trouble(f"{self._trouble}; {count(len(left), 'case')} did not run:{named}{more}")
            session.shouldstop = self._trouble

    def _submit(self, shard: _Shard) -> None:
        number = self.pool.submit(shard.items, shard.memory, self._refused.keys(), shard.avoided)
        self._shards[number] = shard

    def _goes_on(self) -> bool:
        """Take in what shards say; does more come? Raises UsageError where none has a device."""
        found = self.pool.wait(_WAIT_SECONDS)
        self._hear(found)
        self._quiet = 0 if found else self._quiet + 1
        if self._quiet and self._quiet % _BUSY_NOTICE == 0 and self._devices is None:
            _say("probe: no device of the cluster is free yet; the run goes on when one is")
        if not found or time.monotonic() > self._looks_at:
            self._looks_at = time.monotonic() + _WAIT_SECONDS
            ended = self.pool.ended()
            # What a shard said last came before its end.
            for _ in range(self.pool.queued if ended else 0):
                self._hear(self.pool.wait(0))
            for number, why, how in ended:
                self._ended(number, why, how)
        if not self._shards and self._devices is None:
            raise pytest.UsageError(next(iter(self._refused.values()), self._trouble))
        return bool(self._shards)

    def _ended(self, number: int, why: str, how: str) -> None:
        """Let others run what a shard has left. A case at which its process or node is lost runs alone then; that it is
        lost there too is its result."""
        shard, began = self._shards.pop(number), number in self._remarks
        left = tuple(item for item in shard.items if item in self._waiting)
        if self._devices is not None and not left:
            return
        if how == "lost" and began and left:
            self._losses[left[0]] += 1
            if len(shard.items) == 1 and self._losses[left[0]] == DEATHS_OF_A_CASE:
                reason = (
                    f"its process or node was lost {DEATHS_OF_A_CASE} times while it ran; it is not run again: {why}"
                )
                self._decide(left[0], Verdict("error", "", reason, CRASH), None)
                return
            for items in filter(None, (left[:1], left[1:])):
                self._submit(_Shard(items, shard.memory, shard.avoided))
            return
        place = self._places.get(number, "")
        avoided = shard.avoided.union([place] if how == "failed" and place else [])
        tries = shard.tries + (place not in self._refused)
        if how != "gone" and tries < _TRIES:
            self._submit(_Shard(left, shard.memory, avoided, tries, why if how == "failed" else ""))
        else:
            self._trouble = shard.failed or why or "all shards have ended"

    def _hear(self, found: Iterable[Said]) -> None:
        for shard, place, node, messages in found:
            self._places[shard] = place
            for message in messages:
                self._take(shard, node, message)

    def _take(self, shard: int, node: str, message: Message) -> None:
        remark = self._remarks.get(shard, "")
        if isinstance(message, Described):
            self._described(shard, node, message)
        elif isinstance(message, Died):
            if message.stderr and message.stderr not in self._printed:
                self._printed.add(message.stderr)
                _say(message.stderr)
            if (verdict := message.verdict) is not None:
                noted = replace(verdict, notes=(*verdict.notes, *filter(None, [remark])))
                self._decide(message.item, noted, message.device)
        else:
            nodeid, content = message
            if (item := self._waiting.pop(nodeid, None)) is not None:  # its shard may have run before on a lost node
                reports, files = pickle.loads(content)
                self._ran(item, reports, files, remark)

    def _described(self, shard: int, node: str, said: Described) -> None:
        if said.trouble:
            if self._refused.setdefault(self._places[shard], said.trouble) is said.trouble:
                _say(f"{node} runs no cases: {said.trouble}")
            return
        if self._devices is None:
            self._devices = said.devices
            self._probe.know_names(said.name, said.devices)
            if workers_describe_devices(self._probe):
                try:
                    self._reporting.know_devices(said.devices)
                except ProbeError as error:  # the run that goes on had others
                    raise pytest.UsageError(blamed(self._config, error)) from None
        self._nodes |= {f"{node} {device}": {"node": node, **device} for device in said.devices}
        theirs, first = _names(said.devices), _names(self._devices)
        remark = f"ran on node {node}, whose device is {theirs}; the first is {first}"
        self._remarks[shard] = "" if theirs == first else remark

    def _ran(self, item: ProbeItem, said: Sequence[Any], files: Mapping[str, bytes], remark: str) -> None:
        notes = [remark] if remark else []
        path = Path()
        try:
            for path in map(Path, files):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, files[str(path)])
        except OSError as error:  # as `save` says it, in a process that sees the folder
            notes.append(f"{NOT_SAVED}{path} cannot be written ({error.strerror})")
        hook = self._config.hook
        reports = [hook.pytest_report_from_serializable(config=self._config, data=data) for data in said]
        for report in reports if notes else ():
            if lines := carried(report):
                results = (replace(each, notes=(*each.notes, *notes)) for each in results_in(lines))
                report.probe_results = lines_of(results)
        for last in reports[-1:]:
            last.probe_share = item.share
        self._report(item, reports)

    def _decide(self, nodeid: str, verdict: Verdict, device: str | None) -> None:
        """What is said of a case that no process can report."""
        item = self._waiting.pop(nodeid, None)
        if item is None:
            return
        device = device or next(iter(self._probe.settings.devices), None)
        report = pytest.TestReport(nodeid, item.location, {}, "failed", None, "call")
        command = item_command(self._probe, item.dump_path, item.name, item.case.dtype, device)
        result = result_of(self._probe, item.portable_id, verdict, device, item.folded)
        say(report, item.dump_path, result, command, device)
        self._report(item, [passed(report, "setup"), report, passed(report, "teardown")])

    def _report(self, item: ProbeItem, reports: Sequence[pytest.TestReport]) -> None:
        """Hand reports to all that listen, as if the item had run here: none where a plugin ran it without any."""
        hook = self._config.hook
        if reports:
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for report in reports:
                hook.pytest_runtest_logreport(report=report)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def shards_of(
    fitting: Sequence[tuple[list[ProbeItem], int]], share: float, at_once: Callable[[int], int]
) -> Iterator[_Shard]:
    """Groups of items, with the bytes that they take. Ray lets those shards run on a node at the same time that fit in
    its memory. So cases of more than a device's share of it have shards of their own, which begin first; at_once says
    how many of so many bytes run at the same time."""
    for large in (True, False):
        found = [(group, size) for group, size in fitting if (size > share) is large]
        costs = costs_of(group for group, _ in found)
        parts = shards_for(sum(costs), at_once(max((size for _, size in found), default=0)))
        shards: dict[int, list[tuple[list[ProbeItem], int]]] = {}
        for part, each in zip(dealt(costs, parts), found, strict=True):
            shards.setdefault(part, []).append(each)
        for shard in shards.values():
            yield _Shard(tuple(item.nodeid for group, _ in shard for item in group), max(size for _, size in shard))


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
    if hasattr(config.hook, "pytest_configure_node"):
        config.hook.pytest_configure_node(node=node)
    given |= {key: value for feature in probe.features for key, value in feature.for_workers().items()}
    here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return Start(
        tuple(map(str, config.invocation_params.args)),
        str(config.invocation_params.dir),
        tuple(_arguments(probe)),
        {**pytests, **here, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
        # Only the controller resumes an earlier run.
        replace(probe.settings, values={**probe.settings.values, "resume": False}),
        given,
        {path: content_of(path) for path in _read(probe)},
    )


def _arguments(probe: ProcessSession) -> Iterator[str]:
    """What processes collect: the dumps of the run, or what the command line names of them."""
    start = probe.config.invocation_params.dir
    named = {arg: os.path.normpath(start / arg.partition("::")[0]) for arg in probe.config.args}
    files = [(path, str((archive.split(path) or [path])[0])) for path in probe.dumps.known]
    yield from (arg for arg, file in named.items() if any(file == each for _, each in files))
    yield from (address(path) for path, file in files if file not in named.values())


def _read(probe: ProcessSession) -> list[str]:
    """The dumps that the run reads, and their folders of tensors."""
    paths, dumps = set[Path](), list[Dump]()
    for path in probe.dumps.known:
        with suppress(DumpError):
            dumps.append(probe.dumps.read(path))
    for dump in dumps:
        paths.add(dump.path)
        if probe.settings.inputs not in ("generated", "exact") and archive.split(dump.path) is None:
            paths.update((*dump.data_dirs, *dump.gradient_dirs))
    return [str(path) for path in paths if archive.is_file(path) or path.is_dir()]


def _sizes_of(groups: Iterable[Iterable[ProbeItem]]) -> list[int]:
    """Bytes of each group, roughly: of its largest item."""
    known = ByShapes(_needed)

    def size(case: Case) -> int:
        found = known.of(case)
        return found if found < _LARGE else _needed(case)

    return [max(size(item.case) for item in group) for group in groups]


def _needed(case: Case) -> int:
    """The memory that a case needs; 0 for a record that cannot be decoded."""
    with suppress(RecordError):
        return inputs.memory_needed(case.dump.decode(case.record), case.dtype)
    return 0


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
