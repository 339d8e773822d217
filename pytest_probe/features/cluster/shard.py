"""On a node: the process that runs a shard, which is replaced when it dies.

Ray says of a task that died neither the signal nor what it ran. So the task imports no framework and survives; its
child is a pytest with `workerinput`. Everything that is done for pytest-xdist's workers serves it, and deaths have the
same kinds.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.model.verdict import Verdict
from pytest_probe.options import NAMED
from pytest_probe.plugin.device_reports import Described
from pytest_probe.plugin.xdist import DEATHS_OF_A_CASE
from pytest_probe.reports.results_file import digest
from pytest_probe.reports.running_case import Ending, by_limit, file_of, memory_kills, read_running, verdict_on
from pytest_probe.reports.terminal import count
from pytest_probe.settings import Settings
from pytest_probe.system import archive
from pytest_probe.system.files import lock_or_assume

_SAME = ("pytest-probe", "pytest", "msgspec", "numpy")
_TENSORS = (".npy", ".pt", ".safetensors")
_PROGRAM = "pytest_probe.features.cluster.worker"
# How many last bytes of a dead process's stderr are reported.
_TAIL = 4000
# Seconds that a process has to end by itself.
_PATIENCE = 5.0
# Deaths between cases, one behind the other, after which no process can run the shard here.
_IDLE_DEATHS = 2
# Seconds between two messages to the controller, and the bytes that one has at most besides its last item's.
_TICK, _BYTES = 0.1, 2**26


class Start(Struct, frozen=True):
    """What a process needs to become one of this run's.

    args and folder come from the controller's command line; collected is what pytest collects. environment are the
    variables that pytest reads, and OMP_NUM_THREADS, which Ray sets where the user has not: None where it is to be
    unset. worker is what pytest-xdist calls workerinput; items are the node ids of what runs. The node has to have the
    files and folders that the run reads, as `content_of` has them.
    """

    args: tuple[str, ...]
    folder: str
    collected: tuple[str, ...]
    environment: Mapping[str, str | None]
    settings: Settings
    worker: Mapping[str, Any]
    files: Mapping[str, str] = {}
    items: tuple[str, ...] = ()


class Died(Struct, frozen=True):
    """A process died. verdict: on the item that it ran, None where that runs again or there was none; device is its
    device as the run names it, stderr the last that it wrote there."""

    item: str
    verdict: Verdict | None
    device: str | None
    stderr: str


# What the controller hears of a shard. Of an item that ended: its node id; pickled its reports, as pytest serialises
# them, and the files of --probe-save by their paths.
Message: TypeAlias = "Described | Died | tuple[str, bytes]"


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
    say: Callable[[Sequence[Message]], None],
) -> None:
    """Run these items, or, without items, only say what the device is. node is the name of this node, which has so
    many devices; begin is a Start, pickled. This process, which reads it, has to have the wanted versions, and so has
    that of the shard, whose path is another. Raises RuntimeError where no process can run them."""
    left, device, kills, idle = dict.fromkeys(items), Described(), Counter[str](), 0

    def check(versions: Mapping[str, str]) -> None:
        if trouble := _other_version(wanted, versions, node):
            heard([Described(trouble=trouble)])

    def heard(messages: Sequence[Message]) -> None:
        nonlocal device, idle
        for message in messages:
            if isinstance(message, Described):
                device = message
            elif isinstance(message, tuple):
                left.pop(message[0], None)
                idle = 0
        if messages:
            say(messages)
        if device.trouble:
            raise RuntimeError(device.trouble)

    check(versions())
    start: Start = pickle.loads(begin)
    if trouble := _unreadable(start, node):
        heard([Described(trouble=trouble)])
    with tempfile.TemporaryDirectory(prefix="pytest-probe-") as name, _slot() as slot:
        folder, own = Path(name), f"{node}-{slot}"
        file = file_of(folder / "running", own)
        worker = {
            **start.worker,
            "workerid": own,
            "workercount": devices,
            "probe_slot": slot,
            "probe_running": str(file.parent),
            "probe_files": str(folder / "files"),
        }
        while (ending := _run(replace(start, worker=worker, items=tuple(left)), folder, check, heard)) is not None:
            running = read_running(file)
            file.unlink(missing_ok=True)
            verdict, said = None, _stderr(folder)
            if running.item in left:
                idle = 0
                kills[running.item] += ending.killed
                # What was killed from outside runs again, once.
                if not ending.killed or kills[running.item] == DEATHS_OF_A_CASE:
                    del left[running.item]
                    times = max(1, kills[running.item])
                    timed_out = by_limit(running, ending.status)
                    verdict = verdict_on(running, ending, times=times, timed_out=timed_out)
            else:
                idle += 1
            say([Died(running.item, verdict, device.name, said)])
            if idle == _IDLE_DEATHS:
                trouble = f"the process on node {node} died {ending.description} between cases: {_last_line(said)}"
                if device == Described():  # so will the process of each other shard on this node
                    heard([Described(trouble=trouble)])
                raise RuntimeError(trouble)
            if verdict is not None and not left:
                break
        if left:
            why = _last_line(_stderr(folder)) or "its pytest stopped, or did not collect them"
            raise RuntimeError(f"{count(len(left), 'item')} of a shard did not run on node {node}: {why}")


def _other_version(wanted: Mapping[str, str], has: Mapping[str, str], node: str) -> str:
    """Which one this node has that is not the same, "" where it has none."""
    for name, found in has.items():
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


def _run(
    start: Start,
    folder: Path,
    check: Callable[[Mapping[str, str]], None],
    heard: Callable[[Sequence[Message]], None],
) -> Ending | None:
    """One process, until it ends: how it died, None where it ended as it should. check is handed its versions."""
    ours, theirs = Pipe()
    kills, ended = memory_kills(), False
    with ours, (folder / "stderr").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            env=variables(start.environment),
            cwd=start.folder if os.path.isdir(start.folder) else None,
        )
        theirs.close()
        try:
            with suppress(EOFError, OSError):  # it has died
                check(ours.recv())
                ours.send(start)
            for messages in _messages(ours):
                ended = messages[-1:] == [None]
                heard(messages[:-1] if ended else messages)
            if not ended:
                return Ending(process.wait(), memory_kills() > kills)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            return None
        finally:
            process.kill()
            process.wait()


def _messages(pipe: Connection[Any, Any]) -> Iterator[list[Any]]:
    """What a process says, in lists; that of its end ends with None where the process ended as it should."""
    found, due, size = list[Any](), 0.0, 0
    while not found or found[-1] is not None:
        try:
            if pipe.poll(_TICK):
                found.append(pipe.recv())
                size += len(found[-1][1]) if isinstance(found[-1], tuple) else 0
        except (EOFError, OSError):
            break
        if found and found[-1] is not None and (time.monotonic() > due or size > _BYTES):
            yield found
            found, due, size = [], time.monotonic() + _TICK, 0
    yield found


def _stderr(folder: Path) -> str:
    """The end of what the process wrote to stderr."""
    with (folder / "stderr").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace").strip()


def _last_line(text: str) -> str:
    return text.rpartition("\n")[2]


@contextmanager
def _slot() -> Iterator[int]:
    """The number of a device of this node that no other shard has: Ray hides the others of the kinds that it knows."""
    for number in itertools.count():
        with open(os.path.join(tempfile.gettempdir(), f"pytest-probe-{os.getuid()}-{number}.lock"), "ab") as file:
            if lock_or_assume(file):
                yield number
                return
