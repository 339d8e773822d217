"""Processes of ranks on the devices of a cluster's hosts, each kept by an actor of Ray's beside its host's."""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from msgspec import Struct
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pytest_probe.errors import NoKernel
from pytest_probe.features.collectives.rank_process import RankProcess
from pytest_probe.model.collective import RankAnswer, RankCall, RankStart
from pytest_probe.user_errors import first_line

# Seconds that hosts have to start: those that others keep busy have no rank.
_STARTS = 30.0
# Seconds in which an actor answers what it need not wait for.
_ANSWERS = 10.0
# Methods of this group run while an actor waits for its rank.
_BESIDE = "beside"
# ioctl(2), netdevice(7): the address of an interface.
_SIOCGIFADDR = 0x8915


class Home(Struct, frozen=True):
    """A host: its node, the address that others reach it by, and its variables, which say which device it has."""

    node: str
    address: str
    environment: Mapping[str, str]


class RayRanks:
    """homes gives the hosts that are there, those of a node beside each other, and waits at most so many seconds."""

    def __init__(self, homes: Callable[[float], Sequence[Home]]) -> None:
        self._homes = homes
        self._actors: list[Any] = []
        self._waiting: dict[Any, int] = {}

    def start(self, ranks: int, backend: str, program: str, seconds: float) -> None:
        """Several ranks share a host where there are fewer hosts."""
        end = time.monotonic() + min(seconds, _STARTS)
        homes = self._homes(min(seconds, _STARTS))
        if not homes:
            raise NoKernel(f"no host of the cluster is free within {_STARTS:g} s")
        remote: Any = ray.remote
        kind = remote(concurrency_groups={_BESIDE: 1})(_RayRank)
        places = [rank * len(homes) // ranks if ranks > len(homes) else rank for rank in range(ranks)]
        for place in places:
            there = NodeAffinitySchedulingStrategy(node_id=homes[place].node, soft=False)
            actor = kind.options(num_cpus=0, max_restarts=0, scheduling_strategy=there).remote(homes[place])
            self._actors.append(actor)
        meeting = self._meeting(max(1.0, end - time.monotonic()))
        for rank, actor in enumerate(self._actors):
            start = RankStart(rank, ranks, backend, places[:rank].count(places[rank]), meeting, "")
            self._waiting[actor.begin.remote(program, start)] = rank

    def _meeting(self, seconds: float) -> str:
        """Where the first rank listens."""
        try:
            found: str = ray.get(self._actors[0].meeting.remote(), timeout=seconds)
        except RayError as error:
            raise NoKernel(f"the host of rank 0 does not answer: {first_line(error)}") from None
        return found

    def send(self, rank: int, call: RankCall) -> None:
        self._waiting[self._actors[rank].make.remote(call)] = rank

    def answers(self, ranks: Collection[int], seconds: float) -> Mapping[int, RankAnswer]:
        refs = [ref for ref, rank in self._waiting.items() if rank in ranks]
        ready, _ = ray.wait(refs, num_returns=1, timeout=None if seconds == float("inf") else max(0.0, seconds))
        return {self._waiting.pop(ref): _answer(ref) for ref in ready}

    def stack(self, rank: int) -> str:
        try:
            found: str = ray.get(self._actors[rank].stack.remote(), timeout=_ANSWERS)
        except RayError as error:
            return first_line(error)
        return found

    def close(self) -> None:
        """Also where the run has left the cluster, with which they have ended."""
        if ray.is_initialized():
            ended = [actor.close.remote() for actor in self._actors]
            ray.wait(ended, num_returns=len(ended), timeout=_ANSWERS)
            for actor in self._actors:
                ray.kill(actor)
        self._actors, self._waiting = [], {}


def _answer(ref: Any) -> RankAnswer:
    try:
        found: RankAnswer = ray.get(ref)
    except RayError as error:
        return RankAnswer("died", f"its node went away ({first_line(error)})")
    return found


class _RayRank:
    """An actor: keeps the process of a rank, and its pipe."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._folder = tempfile.TemporaryDirectory(prefix="probe-ranks-")
        self._socket: socket.socket | None = None
        self._process: RankProcess | None = None

    def meeting(self) -> str:
        """Listen where the ranks meet, at an address of this node and no other."""
        self._socket = socket.create_server((self._home.address, 0))
        self._socket.set_inheritable(True)
        return f"tcp://{self._home.address}:{self._socket.getsockname()[1]}"

    def begin(self, program: str, start: RankStart) -> RankAnswer:
        """Start the process, and wait until it is ready."""
        listens = None if self._socket is None else self._socket.fileno()
        stacks = os.path.join(self._folder.name, "stacks")
        own = RankStart(start.rank, start.ranks, start.backend, start.device, start.meeting, stacks, listens)
        self._process = RankProcess(program, own, {**_interface(self._home.address), **self._home.environment})
        return self._process.answer()

    def make(self, call: RankCall) -> RankAnswer:
        assert self._process is not None
        self._process.send(call)
        return self._process.answer()

    @ray.method(concurrency_group=_BESIDE)
    def stack(self) -> str:
        return "it has not begun" if self._process is None else self._process.stack()

    @ray.method(concurrency_group=_BESIDE)
    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._folder.cleanup()


def _interface(address: str) -> Mapping[str, str]:
    """Ranks meet on the interface that has this address; without a word backends take the one of the machine's name,
    which is often the loopback."""
    if sys.platform != "linux":
        return {}
    import fcntl

    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, suppress(OSError):
            asked = struct.pack("256s", name.encode())
            if socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)[20:24]) == address:
                return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}
