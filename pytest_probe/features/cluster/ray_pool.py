"""Shards as Ray's tasks, each on a device. Only the modules called ray_* import Ray."""

from __future__ import annotations

import logging
import os
import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeAlias

import ray
from msgspec.structs import replace
from ray._private import ray_constants
from ray.exceptions import RayError
from ray.util.queue import Queue

from pytest_probe.errors import SettingsError
from pytest_probe.features.cluster.ray_ranks import HostDevice, RayRanks, words
from pytest_probe.features.cluster.shard import Message, Start, versions
from pytest_probe.model.collective import RankPool
from pytest_probe.options import NAMED
from pytest_probe.user_errors import first_line

_OPTION = NAMED["cluster"].flag
# Seconds in which an address has to answer.
_ANSWERS = 30.0
# Seconds between two looks while no shard says anything.
_TICK = 0.2
# Messages that wait for the process that reports. Shards wait where there are more: memory holds them.
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
Said: TypeAlias = tuple[int, str, str, Message]
# The number of a shard that runs no more; why it did not run all, "" where it did; and was its process or node lost?
Ended: TypeAlias = tuple[int, str, bool]


class RayPool:
    """Shards as tasks of Ray's, each on a device. resource is Ray's name for the devices, None for GPUs, or else
    CPUs; one_a_node: a node of CPUs runs one. Raises SettingsError where there is no such cluster."""

    def __init__(self, address: str, resource: str | None, *, one_a_node: bool = False) -> None:
        self._address = address
        # Why nodes, by their ids, run no shards that are submitted from now on.
        self.refused: dict[str, str] = {}
        # The shards that have not ended, by their tasks, with the ids of the nodes that cannot run them; and the ones
        # that have begun.
        self._tasks: dict[Any, tuple[int, set[str]]] = {}
        self._begun = set[int]()
        self._number = 0
        self._ranks: RayRanks | None = None
        self._holders: list[Any] = []
        self._connect()
        try:
            found = ray.cluster_resources()  # type: ignore[no-untyped-call]
            self._resource = resource or (_GPU if found.get(_GPU) else _CPU)
            counts = [int(node["Resources"].get(self._resource, 0)) for node in _nodes()]
            if not any(counts):
                known = ", ".join(sorted(name for name in found if ":" not in name and "memory" not in name))
                wanted = f"no node of the cluster has it; there are {known}"
                raise SettingsError(_OPTION, self._resource, wanted)
            # The head goes only with the cluster. Each shard that waits takes one of the places that an actor has.
            options = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}, "max_concurrency": _SHARDS}
            self._queue = Queue(_QUEUED, actor_options=options)
        except BaseException:
            self.end()
            raise
        # A process that has been pytest is nothing else any more. Ray would run all of a shard again, and without end
        # where its process takes too much memory.
        self._task: Any = ray.remote(max_calls=1, max_retries=0)(task_of_shard())
        self._one = one_a_node and self._resource == _CPU
        self.devices = sum(map(bool, counts)) if self._one else sum(counts)
        self._wanted: dict[str, Any] = {"num_cpus": 0, "resources": {self._resource: 1}}
        if self._resource == _CPU:
            # No node has twice more than half of the CPUs of the largest.
            self._wanted = {"num_cpus": max(counts) // 2 + 1 if self._one else 1}
        elif self._resource == _GPU:
            self._wanted = {"num_cpus": 0, "num_gpus": 1}

    def begin(self, start: Start) -> None:
        """What is submitted from now on begins with this."""
        self._start, self._environment = ray.put((versions(), pickle.dumps(start))), start.environment

    def submit(self, items: Sequence[str], avoided: Collection[str] = ()) -> int:
        """Let Ray run these items on a device that is free: where others can, on none of the avoided nodes. The number
        of the shard. Raises ConnectionError where the head of the cluster is lost."""
        wanted = {**self._wanted, "name": "pytest-probe shard", "scheduling_strategy": "SPREAD"}
        without = {*self.refused, *avoided}
        with _head():
            if avoided and self._able() <= without:
                without = {*self.refused}
            if without:
                wanted["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(without))})"}
            self._number += 1
            ours = None if self._one else self._resource, self._number, self._queue
            task = self._task.options(**wanted).remote(self._start, tuple(items), *ours)
        self._tasks[task] = self._number, without
        return self._number

    def news(self) -> tuple[Sequence[Said], Sequence[Ended]]:
        """What shards have said, and the ones that run no more, whose words have all come. Waits a moment for them.
        Raises ConnectionError where the head of the cluster is lost."""
        with _head():
            if said := self._said():
                return said, []
            ready, _ = ray.wait(list(self._tasks), timeout=_TICK)
            said = self._said()
        if said or ready or self._begun:
            return said, [self._ended(task) for task in ready]
        # Ray would wait for a node for ever.
        able, reasons = self._able(), [f" ({why})" for why in self.refused.values()]
        why = "".join(["no device of the cluster is left", *reasons[:1]])
        stuck = [task for task, (_, without) in self._tasks.items() if able <= without]
        return [], [(self._tasks.pop(task)[0], why, True) for task in stuck]

    def _said(self) -> Sequence[Said]:
        found: Sequence[Said] = self._queue.get_nowait_batch(self._queue.size())
        self._begun |= {number for number, *_ in found} & {number for number, _ in self._tasks.values()}
        return found

    def _ended(self, task: Any) -> Ended:
        number, _ = self._tasks.pop(task)
        self._begun.discard(number)
        try:
            return number, ray.get(task), False
        except RayError as error:
            return number, words(error), True

    def _able(self) -> set[str]:
        """The ids of nodes that can run a shard."""
        wanted = self._wanted["num_cpus"] or 1
        return {node["NodeID"] for node in _nodes() if node["Resources"].get(self._resource, 0) >= wanted}

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
        wanted: dict[str, Any] = {"address": given or "local", "logging_level": logging.ERROR}
        if not given:
            wanted["include_dashboard"] = False
        failure = None
        if place := re.fullmatch(r"(ray://)?\[?([^\s/]+?)\]?:([0-9]{1,5})", given):
            at = place[2], int(place[3])
            failure = _failure(lambda: socket.create_connection(at, _ANSWERS).close())
            if failure is None and not place[1]:
                failure = _unhealthy(given)
        # GPUs of a task that asks for none stay visible, which Ray would otherwise say at length.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if failure is None:
            # What ray.init starts on this machine ends with the thread that started it.
            with nullcontext() if given else _on_loopback():
                failure = _failure(partial(ray.init, **wanted))
        if failure is not None:
            reason = f"no cluster answers at {given or 'this machine'}: {failure}"
            raise SettingsError(_OPTION, self._address, reason)


def task_of_shard() -> Callable[..., str]:
    """A function that Ray sends as it is, so that a node without pytest-probe can say so."""

    def shard(
        start: tuple[Mapping[str, str], bytes], items: Sequence[str], resource: str | None, number: int, queue: Any
    ) -> str:
        """A shard, on the node that Ray chose. Why not all ran."""
        own = ray.get_runtime_context().get_node_id()
        node = next(node for node in ray.nodes() if node["NodeID"] == own)  # type: ignore[no-untyped-call]
        name = str(node.get("NodeName") or node["NodeManagerAddress"])
        devices = int(node["Resources"].get(resource, 1))

        def say(message: object) -> None:
            queue.put((number, own, name, message))

        say(None)
        try:
            from pytest_probe.features.cluster.shard import run_shard

            return run_shard(*start, items, name, devices, say)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    return shard


class _Holder:
    """An actor that has a device, which ranks use."""

    def device(self) -> HostDevice:
        context = ray.get_runtime_context()
        address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        visible = {name: value for name, value in os.environ.items() if any(word in name for word in _SHOWN)}
        return HostDevice(context.get_node_id(), 0, address, visible)


@contextmanager
def _head() -> Iterator[None]:
    """Raises ConnectionError where the head of the cluster is lost."""
    try:
        yield
    except (RayError, ConnectionError) as error:
        raise ConnectionError(f"the head of the cluster is lost ({first_line(error)})") from None


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


def _unhealthy(address: str) -> str | None:
    """Why it is not Ray, None where it is. Asked in a separate process, because Ray ends the process if it is not."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    with suppress(subprocess.TimeoutExpired):
        if not subprocess.run(command, capture_output=True, timeout=_ANSWERS).returncode:
            return None
    return "what listens there is no Ray, or asks for a token that this process does not have"


def _failure(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Exception as error:
        return first_line(error)
    return None
