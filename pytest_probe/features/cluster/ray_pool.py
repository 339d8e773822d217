"""Hosts as Ray's actors, one a device. Only the modules called ray_* import Ray."""

from __future__ import annotations

import logging
import math
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import ray
from msgspec import Struct
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

from pytest_probe.errors import SettingsError
from pytest_probe.features.cluster.host import Host
from pytest_probe.features.cluster.messages import Event, NodeLost, Place, RunFacts, Start
from pytest_probe.features.cluster.ray_ranks import BESIDE, HostDevice, RayRanks, end_actors, last_line, on_node
from pytest_probe.model.collective import RankPool
from pytest_probe.options import NAMED
from pytest_probe.system import archive
from pytest_probe.user_errors import first_line

_OPTION = NAMED["cluster"].flag
# Seconds in which an address has to answer, and each node.
_ANSWERS = 30.0
# How variables are called that show a process its own devices alone: CUDA_VISIBLE_DEVICES, ASCEND_RT_VISIBLE_DEVICES,
# NEURON_RT_VISIBLE_CORES, ONEAPI_DEVICE_SELECTOR.
_SHOWN = ("VISIBLE", "DEVICE_SELECTOR")
# What nodes and this process have to have in common: reports are pytest's, and all else is ours.
_SAME = ("pytest-probe", "pytest", "msgspec", "numpy")
# Where this says no, a node has the address 127.0.0.1, and Ray listens there alone: who reaches a cluster may run code
# in it. The name is of the systems on which no is the default.
_OTHER_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Ray's own words for what it knows of.
_CPU, _GPU = "CPU", "GPU"


class _Node(Struct, frozen=True):
    """A node that is there. count is how many devices it has."""

    id: str
    name: str
    memory: float
    count: int


def _facts(files: Sequence[tuple[str, int]], folders: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The versions of the node that this runs on, and what it cannot read."""
    missing = [path for path, size in files if _size(path) != size]
    return _versions(), missing + [path for path in folders if not os.path.isdir(path)]


def _versions() -> dict[str, str]:
    """What has to be the same on all nodes."""
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **{name: _version(name) for name in _SAME}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


class RayPool:
    """Hosts, one a device, by their numbers. resource is Ray's name for the devices, None for GPUs, or CPUs where there
    are none; one_a_node: a host has all of its node's. Raises SettingsError where there is no such cluster, or it does
    not fit."""

    def __init__(self, address: str, resource: str | None, *, one_a_node: bool = False) -> None:
        self._address = address
        self._hosts: dict[int, Any] = {}
        self._ranks: RayRanks | None = None
        self._connect()
        try:
            found = ray.cluster_resources()  # type: ignore[no-untyped-call]
            self._resource = resource or (_GPU if found.get(_GPU) else _CPU)
            if found.get(self._resource, 0) < 1:
                known = ", ".join(sorted(name for name in found if ":" not in name and "memory" not in name))
                wanted = f"no node of the cluster has it; there are {known}"
                raise SettingsError(_OPTION, self._resource, wanted)
            self._one = one_a_node and self._resource == _CPU
            self._nodes: list[_Node] = []
            for node in ray.nodes():  # type: ignore[no-untyped-call]
                has = node["Resources"]
                if node["Alive"] and has.get(self._resource, 0) >= 1:
                    name = node.get("NodeName") or node["NodeManagerAddress"]
                    memory, count = has.get("memory", math.inf), int(has[self._resource])
                    self._nodes.append(_Node(node["NodeID"], name, memory, count))
        except BaseException:
            self.end()
            raise
        self._places: list[Place] = []
        self._waiting: dict[Any, tuple[int, int | None]] = {}

    @property
    def memory(self) -> Mapping[str, float]:
        """Bytes that each node may take, by its id."""
        return {node.id: node.memory for node in self._nodes}

    def unreadable(self, files: Sequence[tuple[Path, int]], folders: Sequence[Path]) -> Mapping[Path, str]:
        """The files, given with their sizes, and the folders that some node does not have; each with its name. Raises
        SettingsError where a node has other versions than this process, or cannot run what it was sent, and where none
        answers."""
        asked = [(str(path), size) for path, size in files], [str(path) for path in folders]
        found: dict[Path, str] = {}
        task = ray.remote(num_cpus=0)(_facts)
        refs = {node: task.options(scheduling_strategy=on_node(node.id)).remote(*asked) for node in self._nodes}
        answered, _ = ray.wait(list(refs.values()), num_returns=len(refs), timeout=_ANSWERS)
        for node, ref in refs.items():
            if ref not in answered:  # it has died, as Ray finds out after a while
                self._nodes.remove(node)
                continue
            try:
                theirs, missing = ray.get(ref)
            except (RayTaskError, RuntimeEnvSetupError) as error:
                wanted = f"node {node.name} cannot run pytest-probe {version('pytest-probe')}: {last_line(error)}"
                raise SettingsError(_OPTION, self._address, wanted) from None
            except RayError:
                self._nodes.remove(node)
                continue
            for name, mine in _versions().items():
                if theirs[name] != mine:
                    wanted = f"node {node.name} has {name} {theirs[name]}, and this process {mine}; install the same"
                    raise SettingsError(_OPTION, self._address, wanted)
            found |= {Path(path): node.name for path in missing}
        if not self._nodes:
            raise SettingsError(_OPTION, self._address, f"none of its nodes answers within {_ANSWERS:g} s")
        return found

    def begin(self, start: Start) -> Sequence[Place]:
        """Start all hosts."""
        self._start = ray.put(start)

        def devices(count: int, seconds: float) -> Sequence[HostDevice]:
            """Those of the hosts that have started, in their order."""
            refs = [host.device.remote() for _, host in sorted(self._hosts.items())]
            ready, _ = ray.wait(refs, num_returns=min(count, len(refs)), timeout=seconds)
            found = []
            for ref in refs:
                with suppress(RayError):  # of one that is lost
                    found += [ray.get(ref)] if ref in ready else []
            return found

        self._ranks = RayRanks(devices, start.environment)
        for node in self._nodes:
            hosts = 1 if self._one else node.count
            self._places += [Place(node.id, node.name, slot, hosts) for slot in range(hosts)]
        for number in range(len(self._places)):
            self._launch(number)
        return self._places

    def tell(self, host: int, facts: RunFacts) -> None:
        """Let a host know this before all that is sent to it from now on."""
        self._hosts[host].tell.remote(facts)

    def replace(self, host: int) -> bool:
        """Start a host anew that is lost; False where its node is gone."""
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        if self._places[host].node not in {node["NodeID"] for node in nodes if node["Alive"]}:
            return False
        self._launch(host)
        return True

    def send(self, host: int, number: int, cases: bytes, files: Iterable[tuple[str, Path]]) -> None:
        """Give a host pickled cases to run behind what it has, and the files that they read."""
        names, refs = [], []
        for name, path in files:
            names.append(name)
            # A file's bytes go into Ray's memory without a copy in this process's.
            content: Any = b""
            if archive.split(path) is not None:
                with archive.open_file(path) as file:
                    content = file.read()
            elif path.stat().st_size:
                content = np.memmap(path, np.uint8, "r")
            refs.append(ray.put(content))
        self._waiting[self._hosts[host].run.remote(cases, names, *refs)] = host, number

    def wait(self, seconds: float) -> Sequence[Event]:
        """What happened since the last time; waits until something does, at most so many seconds."""
        refs = list(self._waiting)
        if not refs:
            time.sleep(seconds)
            return []
        ready, others = ray.wait(refs, num_returns=1, timeout=seconds)
        if ready and others:
            ready += ray.wait(others, num_returns=len(others), timeout=0)[0]
        found: list[Event] = []
        for ref in ready:
            host, number = self._waiting.pop(ref)
            try:
                found.append((host, number, ray.get(ref)))
            except RayError as error:
                found.append((host, number, NodeLost(first_line(error))))
        return found

    @property
    def ranks(self) -> RankPool:
        """Processes of ranks on the devices of these hosts."""
        assert self._ranks is not None
        return self._ranks

    def end(self) -> None:
        """Leave no host behind."""
        if not ray.is_initialized():
            return
        if self._ranks is not None:
            self._ranks.close()
        end_actors(list(self._hosts.values()))
        ray.shutdown()

    def _launch(self, number: int) -> None:
        place = self._places[number]
        remote: Any = ray.remote
        actor = remote(concurrency_groups={BESIDE: 1})(_RayHost)
        wanted: dict[str, Any] = {"num_cpus": 0, "resources": {self._resource: 1}}
        if self._resource == _CPU:
            node = next(node for node in self._nodes if node.id == place.node)
            wanted = {"num_cpus": node.count if self._one else 1}
        elif self._resource == _GPU:
            wanted = {"num_cpus": 0, "num_gpus": 1}
        host = actor.options(**wanted, scheduling_strategy=on_node(place.node), max_restarts=0).remote(
            self._start, place
        )
        self._hosts[number] = host
        self._waiting[host.ready.remote()] = number, None

    def _connect(self) -> None:
        """Raises SettingsError where nobody answers."""
        given = self._address if self._address != "ray" else os.environ.get("RAY_ADDRESS", "")
        # Without an address Ray looks for one on this machine, and ends the process where that is an old one.
        wanted: dict[str, Any] = {"address": given or "local", "log_to_driver": False, "logging_level": logging.ERROR}
        if not given:
            wanted["include_dashboard"] = False
        end = time.monotonic() + _ANSWERS
        place = re.fullmatch(r"(ray://)?\[?([^\s/]+?)\]?:([0-9]{1,5})", given)
        if place is not None:
            at = place[2], int(place[3])
            # Does anything answer at this port?
            while (why := _failure(lambda: socket.create_connection(at, _ANSWERS).close())) is not None:
                if time.monotonic() > end - 1:
                    self._refuse(given, why)
                time.sleep(1)
        if place is not None and not place[1]:
            self._check_health(given, end)
        # GPUs of a task that asks for none stay visible, which Ray would otherwise say at length.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # What ray.init starts on this machine ends with the thread that started it.
        init = partial(ray.init, **wanted)
        with nullcontext() if given else _on_loopback():
            failure = _within(end - time.monotonic(), init) if place is not None and place[1] else _failure(init)
        if failure is not None:
            self._refuse(given or "this machine", failure)

    def _check_health(self, given: str, end: float) -> None:
        """Is it Ray? Asked in a separate process, because Ray ends the process if it is not."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", given]
        try:
            healthy = not subprocess.run(
                command, capture_output=True, timeout=max(1.0, end - time.monotonic())
            ).returncode
        except subprocess.TimeoutExpired:
            healthy = False
        if not healthy:
            self._refuse(given, "what listens there is no Ray, or asks for a token that this process does not have")

    def _refuse(self, given: str, why: str) -> NoReturn:
        wanted = f"no cluster answers at {given} within {_ANSWERS:g} s: {why}"
        raise SettingsError(_OPTION, self._address, wanted)


class _RayHost:
    """An actor: a host, with files as Ray gives them."""

    def __init__(self, start: Start, place: Place) -> None:
        self._host, self._place = Host(start, place), place

    def ready(self) -> Any:
        return self._host.ready()

    def tell(self, facts: RunFacts) -> None:
        self._host.tell(facts)

    @ray.method(concurrency_group=BESIDE)
    def close(self) -> None:
        self._host.close()

    @ray.method(concurrency_group=BESIDE)
    def device(self) -> HostDevice:
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        visible = {name: value for name, value in os.environ.items() if any(word in name for word in _SHOWN)}
        return HostDevice(self._place.node, self._place.slot, address, visible)

    def run(self, cases: bytes, names: Sequence[str], *contents: Any) -> Any:
        """contents are the contents of the files called names."""
        return self._host.run(cases, dict(zip(names, contents, strict=True)))


@contextmanager
def _on_loopback() -> Iterator[None]:
    """What Ray starts in here listens on this machine alone."""
    before = os.environ.get(_OTHER_MACHINES), ray_constants.ENABLE_RAY_CLUSTER
    # Its processes read the variable; this process did so when Ray was imported.
    os.environ[_OTHER_MACHINES], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before[1]
        os.environ.pop(_OTHER_MACHINES)
        if before[0] is not None:
            os.environ[_OTHER_MACHINES] = before[0]


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _within(seconds: float, call: Callable[[], object]) -> str | None:
    """What went wrong in a call that has so much time, None where nothing did."""
    failures: list[str | None] = []
    thread = threading.Thread(target=lambda: failures.append(_failure(call)), daemon=True)
    thread.start()
    thread.join(max(1.0, seconds))
    return failures[0] if failures else "it took longer, or it asks for a token that this process does not have"


def _failure(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Exception as error:
        return first_line(error)
    return None
