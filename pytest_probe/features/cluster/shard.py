"""On a node: a shard runs in the process that Ray started. That is pytest-xdist's controller of one worker, so that a
case that kills its worker has the result that it has under -n; but it reports nothing, and hands reports over."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec import Struct

from pytest_probe.errors import ProbeError, SettingsError
from pytest_probe.options import NAMED
from pytest_probe.plugin.device_reports import DeviceReportReader
from pytest_probe.plugin.session import STATE, ProcessSession
from pytest_probe.plugin.xdist import Controller, status_of
from pytest_probe.reports.results_file import digest
from pytest_probe.reports.running_case import Ending
from pytest_probe.settings import Settings, blamed
from pytest_probe.system import archive
from pytest_probe.system.files import lock_or_assume

_SAME = ("pytest-probe", "pytest", "pytest-xdist", "msgspec", "numpy")
_TENSORS = (".npy", ".pt", ".safetensors")
_PLUGIN = "pytest_probe.features.cluster.worker"
# Bytes of a file that one message has at most. Several messages wait in memory, which files may not fit in. In pieces
# of a quarter of this, files take three times as long.
_PIECE = 2**22


class Start(Struct, frozen=True):
    """What the processes of a shard need to become ones of this run.

    args, folder and path, where modules are looked for, are those of the process that reports; collected is what pytest
    collects. environment are the variables that pytest reads, and OMP_NUM_THREADS, which Ray sets where the user has
    not: None where it is to be unset. worker is what pytest-xdist calls workerinput. The node has to have the files and
    folders that the run reads, as `content_of` has them.
    """

    args: tuple[str, ...]
    folder: str
    path: tuple[str, ...]
    collected: tuple[str, ...]
    environment: Mapping[str, str | None]
    settings: Settings
    worker: Mapping[str, Any]
    files: Mapping[str, str] = {}


# What a shard says: None when it begins; what its device is, once a framework; of an item that ended the files that it
# wrote, piece by piece, by the paths where they belong; then its node id, and its reports, as pytest serialises them.
Message: TypeAlias = "list[dict[str, str]] | tuple[str, bytes] | tuple[str, list[dict[str, Any]]] | None"


def variables(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Those of a process of this run: this process's, and what Start says of them."""
    known = {**os.environ, **environment}
    return {name: value for name, value in known.items() if value is not None}


def versions() -> dict[str, str]:
    """What has to be the same on all nodes: reports are pytest's, and all else is ours."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in _SAME:
        found[name] = "none"
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def content_of(path: str) -> str:
    """What a dump holds, and the size of its file or archive; of a folder the names and sizes of its tensors, since a
    run may write other files there; "" where it cannot be read."""
    place = archive.split(Path(path))
    with suppress(OSError):
        if place is None and os.path.isdir(path):
            files = [file for file in os.scandir(path) if file.name.endswith(_TENSORS)]
            listed = "\n".join(sorted(f"{file.name} {file.stat().st_size}" for file in files))
            return hashlib.sha256(os.fsencode(listed)).hexdigest()
        return f"{digest(Path(path))} {os.path.getsize(path if place is None else place[0])}"
    return ""


def run_shard(
    wanted: Mapping[str, str],
    begin: bytes,
    items: Sequence[str],
    node: str,
    devices: int,
    say: Callable[[Message], None],
) -> str:
    """Run these items, or, without items, only say what the device is. node is the name of this node, which has the
    wanted versions and so many devices; begin is a Start, pickled. Gives why not all ran, "" where all did."""
    if trouble := _other_version(wanted, node):
        return trouble
    start: Start = pickle.loads(begin)
    if trouble := _unreadable(start, node):
        return trouble
    os.environ.update(known := variables(start.environment))
    for name in start.environment.keys() - known.keys():
        os.environ.pop(name, None)
    sys.path += [path for path in start.path if path not in sys.path]
    if os.path.isdir(start.folder):
        os.chdir(start.folder)
    with tempfile.TemporaryDirectory(prefix="pytest-probe-") as folder, _slot() as slot:
        worker = {
            **start.worker,
            "workerid": f"{node}-{slot}",
            "workercount": devices,
            "probe_slot": slot,
            "probe_running": os.path.join(folder, "running"),
            "probe_files": os.path.join(folder, "files"),
            "probe_start": begin,
            "probe_collected": list(start.collected),
            "probe_items": list(items),
        }
        shard = _Shard(worker, node, say)
        with redirect_stderr(io.StringIO()) as said:
            pytest.main([*start.args, "-p", _PLUGIN], plugins=[shard])
    if shard.described and not shard.left:
        return ""
    text = said.getvalue().strip()
    if "ERROR: " in text:  # as pytest begins what it says of options
        return text.rpartition("ERROR: ")[2]
    return shard.trouble or _last_line(text) or "its pytest stopped, or did not collect them"


class _Shard:
    """A plugin of the process that Ray started."""

    def __init__(self, worker: dict[str, Any], node: str, say: Callable[[Message], None]) -> None:
        self._worker, self._node, self._say = worker, node, say
        self._reports: list[pytest.TestReport] = []
        self.left = set(worker["probe_items"])
        self.described = False
        # Why its worker did not start, or collect.
        self.trouble = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        # So that plugins write no reports.
        early_config.workerinput, early_config.workeroutput = dict(self._worker), {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        # Not by -p no:terminal, without which pytest does not know -v.
        config.pluginmanager.unregister(config.pluginmanager.getplugin("terminal"))
        config.option.usepdb, config.option.numprocesses = False, 1
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self._config, probe = config, config.stash[STATE]
        # What plugins give a worker, the process that reports has asked them for; in this one they are a worker's.
        for hook in config.hook.pytest_configure_node.get_hookimpls():
            config.pluginmanager.unregister(hook.plugin)
        controller = _OneWorker(probe, self._worker)
        config.pluginmanager.register(controller, "probe-controller")
        reader = DeviceReportReader(probe, self._know, controller.folder)
        config.pluginmanager.register(reader, "probe-device-reports")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        try:
            _ = session.config.stash[STATE].others
        except ProbeError as error:  # one that this node cannot read
            raise pytest.UsageError(blamed(session.config, error)) from None

    def _know(self, devices: list[dict[str, str]]) -> None:
        self.described = True
        self._say(devices)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error is not None:
            self.trouble = f"the process on node {self._node} died {Ending(status_of(node)).description}"

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.trouble = _last_line(report.longreprtext)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "probe_again"):
            self._reports = []
            return
        self._reports.append(report)
        if report.when == "teardown":
            reports, self._reports = self._reports, []
            hook, data = self._config.hook, []
            for each in reports:
                data.append(hook.pytest_report_to_serializable(config=self._config, report=each))
                data[-1].pop("node", None)
            if folder := data[-1].pop("probe_files", None):
                for piece in pieces(Path(folder)):
                    self._say(piece)
                shutil.rmtree(folder)
            self.left.discard(report.nodeid)
            self._say((report.nodeid, data))


class _OneWorker(Controller):
    """Gives its worker what the process that reports gives."""

    def __init__(self, probe: ProcessSession, worker: Mapping[str, Any]) -> None:
        super().__init__(probe)
        self._worker = worker

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        own = {"workerid": f"{self._worker['workerid']}-{node.gateway.id}"}
        node.workerinput.update({**self._worker, **own})


def pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a folder, by the paths where they belong."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                # An empty file has a piece too.
                for _ in range(0, max(1, path.stat().st_size), _PIECE):
                    yield f"/{path.relative_to(folder).as_posix()}", file.read(_PIECE)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def _other_version(wanted: Mapping[str, str], node: str) -> str:
    """Which one this node has that is not the same, "" where it has none."""
    for name, found in versions().items():
        if found != (asked := wanted.get(name, "none")):
            reason = f"node {node} has {name} {found}, and this process {asked}; install the same"
            return str(SettingsError(NAMED["cluster"].flag, name, reason))
    return ""


def _unreadable(start: Start, node: str) -> str:
    """Why this node cannot read what the run reads, "" where it can."""
    for path, content in start.files.items():
        if (found := content_of(path)) != content:
            another = "other tensors" if os.path.isdir(path) else "another file"
            what = f"has {another} there" if found else "cannot read it"
            wanted = f"node {node} {what}; put it where all nodes have the same path"
            return str(SettingsError(NAMED["dump"].flag, path, wanted))
    return ""


@contextmanager
def _slot() -> Iterator[int]:
    """The number of a device of this node that no other shard has: Ray hides the others of the kinds that it knows."""
    for number in itertools.count():
        with open(os.path.join(tempfile.gettempdir(), f"pytest-probe-{os.getuid()}-{number}.lock"), "ab") as file:
            if lock_or_assume(file):
                yield number
                return
