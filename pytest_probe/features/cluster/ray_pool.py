"""Shards as Ray's tasks, each on a device. Only the modules called ray_* import Ray."""

from __future__ import annotations

import logging
import math
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Literal, NoReturn, TypeAlias

import ray
from msgspec.structs import replace
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError
from ray.util.queue import Empty, Queue

from pytest_probe.errors import SettingsError
from pytest_probe.features.cluster.ray_ranks import CLOSES, HostDevice, RayRanks, last_line
from pytest_probe.features.cluster.shard import Message, Start, run_shard, versions
from pytest_probe.model.collective import RankPool
from pytest_probe.options import NAMED
from pytest_probe.user_errors import first_line

_OPTION = NAMED["cluster"].flag
# Seconds in which an address has to answer, and each node.
_ANSWERS = 30.0
# Messages that wait for the controller. Shards wait where there are more, since some have tensors of --probe-save.
_QUEUED = 16
# More shards than run at the same time.
_SHARDS = 100_000
# How variables are called that show a process its own devices alone: CUDA_VISIBLE_DEVICES, ASCEND_RT_VISIBLE_DEVICES,
# NEURON_RT_VISIBLE_CORES, ONEAPI_DEVICE_SELECTOR.
_SHOWN = ("VISIBLE", "DEVICE_SELECTOR")
# Where this says no, a node has the address 127.0.0.1, and Ray listens there alone: who reaches a cluster may run code
# in it. The name is of the systems on which no is the default.
_OTHER_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Ray's own words for what it knows of.
_CPU, _GPU = "CPU", "GPU"


# The number of a shard, the id and the name of its node, and what it says.
Said: TypeAlias = tuple[int, str, str, Sequence[Message]]
# The number of a shard that runs no more; why, "" where it ran all; and how: it failed, its process or node was lost,
# or nothing is left that can run it.
Ended: TypeAlias = tuple[int, str, Literal["failed", "lost", "gone"]]


class RayPool:
    """Shards as tasks of Ray's, each on a device. resource is Ray's name for the devices, None for GPUs, or else
    CPUs; one_a_node: a node of CPUs runs one. Raises SettingsError where there is no such cluster."""

    queued = _QUEUED

    def __init__(self, address: str, resource: str | None, *, one_a_node: bool = False) -> None:
        self._address = address
        # The tasks that have not ended: the number, the memory of their nodes, and the ids of nodes where they cannot
        # run, and where they do not.
        self._tasks: dict[Any, tuple[int, int, frozenset[str], frozenset[str]]] = {}
        self._number = 0
        self._failure = ""
        self._ranks: RayRanks | None = None
        self._holders: list[Any] = []
        self._connect()
        try:
            found = ray.cluster_resources()  # type: ignore[no-untyped-call]
            self._resource = resource or (_GPU if found.get(_GPU) else _CPU)
            self._nodes = [node for node in _nodes() if node["Resources"].get(self._resource, 0) >= 1]
            if not self._nodes:
                known = ", ".join(sorted(name for name in found if ":" not in name and "memory" not in name))
                wanted = f"no node of the cluster has it; there are {known}"
                raise SettingsError(_OPTION, self._resource, wanted)
            # The head goes only with the cluster. Each shard that waits takes one of the places that an actor has.
            options = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}, "max_concurrency": _SHARDS}
            self._queue = Queue(_QUEUED, actor_options=options)
        except BaseException:
            self.end()
            raise
        # Ray would run all of it again, and does not know which case ran.
        self._task: Any = ray.remote(max_retries=0)(_shard)
        counts = [int(node["Resources"][self._resource]) for node in self._nodes]
        self._one = one_a_node and self._resource == _CPU
        # The bytes that each node may take, and how many devices it has.
        room = [node["Resources"].get("memory", math.inf) for node in self._nodes]
        self._room = [(bytes, 1 if self._one else number) for bytes, number in zip(room, counts, strict=True)]
        self.memory, self.share = max(room), min(bytes / number for bytes, number in self._room)
        self.devices = self.at_once(0)
        self._wanted: dict[str, Any] = {"num_cpus": 0, "resources": {self._resource: 1}}
        if self._resource == _CPU:
            # No node has twice more than half of the CPUs of the largest.
            self._wanted = {"num_cpus": max(counts) // 2 + 1 if self._one else 1}
        elif self._resource == _GPU:
            self._wanted = {"num_cpus": 0, "num_gpus": 1}

    def begin(self, start: Start) -> None:
        """What is submitted from now on begins with this."""
        self._start, self._environment = ray.put((versions(), pickle.dumps(start))), start.environment

    def at_once(self, memory: int) -> int:
        """How many shards that take so many bytes run at the same time."""
        return int(sum(min(devices, bytes // max(1, memory)) for bytes, devices in self._room))

    def submit(
        self, items: Sequence[str], memory: int, refused: Collection[str] = (), avoided: Collection[str] = ()
    ) -> int:
        """Let Ray run these items, which take so many bytes, on a device that is free: on none of the refused nodes,
        and on one that is avoided where no other can run them. The number of the shard."""
        wanted = {**self._wanted, **({"memory": memory} if memory else {})}
        never, without = frozenset(refused), frozenset((*refused, *avoided))
        if not self._left(_nodes(), memory, without):
            without = never
        if without:
            wanted["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(without))})"}
        task = self._task.options(**wanted)
        self._number += 1
        ours = self._resource, self._one, self._number, self._queue
        self._tasks[task.remote(self._start, tuple(items), *ours)] = self._number, memory, never, without
        return self._number

    def wait(self, seconds: float) -> Sequence[Said]:
        """What shards have said; waits until one says something, at most so long."""
        try:
            # With a timeout of 0 asyncio, which waits there, takes nothing.
            return [] if self._failure else [self._queue.get(block=seconds > 0, timeout=seconds)]
        except Empty:
            return []
        except (RayError, ConnectionError) as error:
            self._failure = f"the head of the cluster is lost ({first_line(error)})"
            return []

    def ended(self) -> list[Ended]:
        """The shards that run no more. What they said last waits for `wait`."""
        tasks, found = list(self._tasks), list[Ended]()
        if self._failure:
            return [(self._tasks.pop(task)[0], self._failure, "gone") for task in tasks]
        for task in ray.wait(tasks, num_returns=len(tasks), timeout=0)[0] if tasks else ():
            number = self._tasks.pop(task)[0]
            try:
                ray.get(task)
                found.append((number, "", "failed"))
            except RayTaskError as error:
                found.append((number, last_line(error).removeprefix("RuntimeError: "), "failed"))
            except RayError as error:
                found.append((number, first_line(error), "lost"))
        nodes = _nodes()
        for task, (number, memory, never, without) in tuple(self._tasks.items()):
            if not self._left(nodes, memory, without):
                del self._tasks[task]
                # The nodes that it was to avoid are the last ones.
                how: Literal["lost", "gone"] = "lost" if self._left(nodes, memory, never) else "gone"
                found.append((number, "no device of the cluster is left", how))
        return found

    def _left(self, nodes: Iterable[Mapping[str, Any]], memory: int, without: Collection[str]) -> bool:
        """Can one of these nodes run a shard that takes so many bytes?"""
        wanted = self._wanted["num_cpus"] or 1
        return any(
            node["NodeID"] not in without
            and node["Resources"].get(self._resource, 0) >= wanted
            and node["Resources"].get("memory", math.inf) >= memory
            for node in nodes
        )

    def finish(self) -> None:
        """Let processes end by themselves that have run all."""
        if self._tasks:
            ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=CLOSES)

    @property
    def ranks(self) -> RankPool:
        """Processes of ranks on devices of the cluster."""
        if self._ranks is None:
            self._ranks = RayRanks(self._held, self._environment)
        return self._ranks

    def _held(self, count: int, seconds: float) -> Sequence[HostDevice]:
        """Devices that are kept for ranks, those of a node next to each other."""
        kind: Any = ray.remote(**self._wanted, max_restarts=0)(_Holder)
        self._holders += [kind.remote() for _ in range(min(count, self.devices) - len(self._holders))]
        refs = [holder.device.remote() for holder in self._holders]
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=seconds)
        found: list[HostDevice] = []
        for holder, ref in zip(tuple(self._holders), refs, strict=True):
            if ref in ready:
                self._holders.remove(holder)
                with suppress(RayError):  # it is lost
                    found.append(ray.get(ref))
                    self._holders.append(holder)
        found.sort(key=lambda device: device.node)
        nodes = [device.node for device in found]
        return [replace(device, slot=nodes[:place].count(device.node)) for place, device in enumerate(found)]

    def free_ranks(self) -> None:
        """Give the devices of ranks back."""
        if self._ranks is not None:
            self._ranks.close()
        for holder in self._holders:
            ray.kill(holder)
        self._holders = []

    def end(self) -> None:
        """Leave no process behind: Ray ends the shards of a run that goes. Not by ray.cancel, which ends this process
        where a shard ends at the same moment."""
        if not ray.is_initialized():
            return
        with suppress(RayError, RuntimeError):
            self.free_ranks()
        ray.shutdown()

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


def _shard(
    start: tuple[Mapping[str, str], bytes], items: tuple[str, ...], resource: str, one: bool, number: int, queue: Queue
) -> None:
    """A task: a shard, on the node that Ray chose."""
    own = ray.get_runtime_context().get_node_id()
    node = next(node for node in _nodes() if node["NodeID"] == own)
    name = str(node.get("NodeName") or node["NodeManagerAddress"])
    devices = 1 if one else int(node["Resources"][resource])
    run_shard(*start, items, name, devices, lambda messages: queue.put((number, own, name, messages)))


class _Holder:
    """An actor that has a device, which ranks use."""

    def device(self) -> HostDevice:
        context = ray.get_runtime_context()
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        visible = {name: value for name, value in os.environ.items() if any(word in name for word in _SHOWN)}
        return HostDevice(context.get_node_id(), 0, address, visible)


def _nodes() -> list[dict[str, Any]]:
    """The devices that are there."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


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
