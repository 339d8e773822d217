"""Processes of ranks on the devices of a cluster's nodes, each kept by an actor of Ray's."""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import ray
from msgspec import Struct
from msgspec.structs import replace
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pytest_probe.errors import NoKernel
from pytest_probe.features.cluster.shard import variables
from pytest_probe.frameworks.rank_process import RankAnswers, RankProcess
from pytest_probe.model.collective import RankAnswer, RankCall, RankStart
from pytest_probe.user_errors import first_line

# Methods of this group run while another method of the actor waits: it can be closed, or asked, meanwhile.
_BESIDE = "beside"
# Seconds that processes have to clean up behind them.
_CLOSES = 5.0
# Seconds until devices are free for ranks, at most; ranks share the free ones.
_STARTS = 30.0
# Seconds that an actor has to start, and to answer what it need not wait for.
_ANSWERS = 30.0
# ioctl(2), netdevice(7): the address of an interface.
_SIOCGIFADDR = 0x8915


class HostDevice(Struct, frozen=True):
    """A device that is kept for ranks: its node, the device's number there, the address by which other nodes reach it,
    and the variables by which Ray shows a process its own devices alone."""

    node: str
    slot: int
    address: str
    visible: Mapping[str, str]


class RayRanks:
    """devices gives the ones kept for ranks, those of a node next to each other: it waits until there are so
    many, at most so many seconds. environment is Start's."""

    def __init__(
        self, devices: Callable[[int, float], Sequence[HostDevice]], environment: Mapping[str, str | None]
    ) -> None:
        self._devices, self._environment = devices, environment
        self._actors: list[Any] = []
        self._waiting: dict[Any, int] = {}

    def start(self, ranks: int, backend: str, program: str, seconds: float) -> None:
        """Several ranks share a device where there are fewer. The first of them has it."""
        # What is left is for the ranks.
        devices = self._devices(ranks, min(seconds / 2, _STARTS))
        if not devices:
            raise NoKernel("no device of the cluster was free for a rank")
        places = [rank * len(devices) // ranks if ranks > len(devices) else rank for rank in range(ranks)]
        remote: Any = ray.remote
        kind = remote(concurrency_groups={_BESIDE: 1})(_RayRank)
        for place in places:
            there = NodeAffinitySchedulingStrategy(node_id=devices[place].node, soft=False)
            options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": there}
            self._actors.append(kind.options(**options).remote(devices[place], self._environment))
        # Where the first rank listens.
        try:
            meeting: str = ray.get(self._actors[0].meeting.remote(), timeout=_ANSWERS)
        except RayError as error:
            raise NoKernel(f"ranks cannot meet at the node of rank 0: {words(error)}") from None
        for rank, (place, actor) in enumerate(zip(places, self._actors, strict=True)):
            device = None if place in places[:rank] else devices[place].slot
            start = RankStart(rank, ranks, backend, device, meeting, "", masked=True)
            self._waiting[actor.begin.remote(program, start)] = rank

    def send(self, rank: int, call: RankCall) -> None:
        self._waiting[self._actors[rank].make.remote(call)] = rank

    def answers(self, ranks: Collection[int], seconds: float) -> Mapping[int, RankAnswer]:
        refs = [ref for ref, rank in self._waiting.items() if rank in ranks]
        ready, _ = ray.wait(refs, num_returns=1, timeout=None if seconds == float("inf") else max(0.0, seconds))
        found: dict[int, RankAnswer] = {}
        for ref in ready:
            rank = self._waiting.pop(ref)
            try:
                found[rank] = ray.get(ref)
            except RayTaskError as error:
                found[rank] = RankAnswer("unavailable", f"the process of a rank cannot be used: {words(error)}")
            except RayError as error:
                found[rank] = RankAnswer("lost", f"its node went away ({words(error)})")
        return found

    def stacks(self, ranks: Sequence[int], seconds: float) -> Sequence[str]:
        asked = {rank: self._actors[rank].stack.remote(seconds / 2) for rank in ranks}
        ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds)
        return [_stack(asked[rank]) if asked[rank] in ready else "its node does not answer" for rank in ranks]

    def close(self) -> None:
        """Let each actor close what it keeps, and end it."""
        actors, self._actors, self._waiting = self._actors, [], {}
        if not actors:  # Ray would begin again to wait for none
            return
        with suppress(RayError, RuntimeError):
            closed = [actor.close.remote() for actor in actors]
            ray.wait(closed, num_returns=len(closed), timeout=_CLOSES)
        for actor in actors:
            with suppress(RayError, RuntimeError):
                ray.kill(actor)


def _stack(ref: Any) -> str:
    try:
        found: str = ray.get(ref)
    except RayError as error:
        return words(error)
    return found


def words(error: RayError) -> str:
    if isinstance(error, GetTimeoutError):
        return f"no answer within {_ANSWERS:g} s"
    return _last_line(error) if isinstance(error, RayTaskError) else first_line(error).rstrip(".")


def _last_line(error: BaseException) -> str:
    """The last line of an error on a node, whose first lines are a traceback."""
    return next(line for line in reversed(str(error).splitlines() or [type(error).__name__]) if line.strip())


class _RayRank:
    """An actor: keeps the process of a rank, and its pipe."""

    def __init__(self, device: HostDevice, environment: Mapping[str, str | None]) -> None:
        self._device = device
        self._variables = {**_interface(device.address), **variables(environment), **device.visible}
        self._folder = tempfile.TemporaryDirectory(prefix="probe-ranks-")
        self._socket: socket.socket | None = None
        self._process: RankProcess | None = None
        self._answers: RankAnswers = SimpleQueue()

    def meeting(self) -> str:
        """Listen where the ranks meet, at an address of this node and no other."""
        address = self._device.address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family)
        self._socket.set_inheritable(True)
        return f"tcp://{address}:{self._socket.getsockname()[1]}"

    def begin(self, program: str, start: RankStart) -> RankAnswer:
        """Start the process, and wait until it is ready."""
        listens = None if self._socket is None else self._socket.fileno()
        stacks = os.path.join(self._folder.name, "stacks")
        own = replace(start, stacks=stacks, listens=listens)
        self._process = RankProcess(program, own, self._variables, self._answers)
        return self._answers.get()[1]

    def make(self, call: RankCall) -> RankAnswer:
        assert self._process is not None
        self._process.send(call)
        return self._answers.get()[1]

    @ray.method(concurrency_group=_BESIDE)
    def stack(self, seconds: float) -> str:
        if self._process is None:
            return "it has not begun"
        self._process.ask_stack()
        return self._process.stack(time.monotonic() + seconds)

    @ray.method(concurrency_group=_BESIDE)
    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._folder.cleanup()


def _interface(address: str) -> Mapping[str, str]:
    """The variables that name the interface with this address. Without them backends take that of the machine's name,
    which is often the loopback."""
    if sys.platform != "linux":
        return {}
    import fcntl

    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, suppress(OSError):
            asked = struct.pack("256s", name.encode())
            if socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)[20:24]) == address:
                # NCCL takes a name for the beginning of names.
                return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"}
    return {}
