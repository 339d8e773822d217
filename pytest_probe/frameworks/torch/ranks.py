"""A process of one rank: it makes the collectives that it gets over a pipe, and gives back what it received.

The pipe is a file descriptor, through which a RankStart comes first: see frameworks/rank_start.py.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from pytest_probe.frameworks.torch.arrays import to_array, to_tensor
from pytest_probe.model.collective import RankAnswer, RankCall, RankStart, Reduction

_REDUCTIONS: Mapping[Reduction, Any] = {
    "total": dist.ReduceOp.SUM,
    "average": dist.ReduceOp.AVG,
    "product": dist.ReduceOp.PRODUCT,
    "largest": dist.ReduceOp.MAX,
    "least": dist.ReduceOp.MIN,
    "and": dist.ReduceOp.BAND,
    "or": dist.ReduceOp.BOR,
    "exclusive or": dist.ReduceOp.BXOR,
}
# Backends whose tensors lie on the host.
_ON_HOST = ("gloo", "mpi", "ucc")


def main(pipe: int) -> None:
    connection = Connection(pipe)
    start: RankStart = connection.recv()
    file = open(start.stacks, "wb", buffering=0)  # noqa: SIM115 - faulthandler writes to it until the end
    faulthandler.register(signal.SIGUSR1, file, all_threads=True)
    torch.set_num_threads(1)
    trouble = _trouble(start)
    if trouble:
        connection.send(RankAnswer("unavailable", trouble))
        return
    try:
        device = _device(start)
        dist.init_process_group(start.backend, store=_store(start), rank=start.rank, world_size=start.ranks)
    except Exception as error:
        words = f"rank {start.rank} of {start.ranks} could not start: {type(error).__name__}: {error}"
        connection.send(RankAnswer("unavailable", words))
        return
    _Rank(start.rank, start.ranks, device).serve(connection)


def _trouble(start: RankStart) -> str:
    """Why this process cannot be a rank of this backend, "" if it can."""
    backend = start.backend
    if not dist.is_backend_available(backend):
        built = [name for name in ("gloo", "nccl", "mpi", "ucc", "xccl") if dist.is_backend_available(name)]
        return f"{backend} is not built into this torch; {' and '.join(built)} is"
    if backend in _ON_HOST or _index(start) is not None:
        return ""
    count = torch.accelerator.device_count()
    return f"{backend} takes an accelerator for each rank; rank {start.rank} has none of the {count} that it sees"


def _index(start: RankStart) -> int | None:
    """The number of its accelerator in this process; None where it has none."""
    count = torch.accelerator.device_count()
    if start.device is None:
        return None
    if start.masked and count == 1:
        return 0
    return start.device if start.device < count else None


def _device(start: RankStart) -> torch.device:
    """Where its tensors lie. An accelerator is made the process's own."""
    if start.backend in _ON_HOST:
        return torch.device("cpu")
    kind, index = torch.accelerator.current_accelerator(), _index(start)
    assert kind is not None
    assert index is not None
    torch.accelerator.set_device_index(index)
    return torch.device(kind.type, index)


def _store(start: RankStart) -> Any:
    """Where the ranks find each other."""
    scheme, _, place = start.meeting.partition("://")
    if scheme == "file":
        return torch._C._distributed_c10d.FileStore(place, start.ranks)
    address, _, port = place.rpartition(":")
    first = start.rank == 0
    return torch._C._distributed_c10d.TCPStore(
        address, int(port), start.ranks, first, wait_for_workers=False, master_listen_fd=start.listens
    )


class _Rank:
    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        self._rank, self._device = rank, device
        self._groups: dict[int, Any] = {ranks: dist.group.WORLD}
        self._modules: dict[str, Any] = {}

    def serve(self, connection: Connection) -> None:
        """Until the pipe is closed."""
        connection.send(RankAnswer("ready", ""))
        while True:
            try:
                call: RankCall = connection.recv()
            except EOFError:
                return
            connection.send(self._answer(call))

    def _answer(self, call: RankCall) -> RankAnswer:
        try:
            # All ranks make a group, in it or not.
            if call.count not in self._groups:
                self._groups[call.count] = dist.new_group(list(range(call.count)))
            if self._rank >= call.count:
                return RankAnswer("received", [])
            sent = to_tensor(call.sent).to(self._device)
            got = self._by_function(call, sent) if call.function is not None else _MADE[call.kind](self, call, sent)
            return RankAnswer("received", [to_array(each.cpu()) for each in got])
        except Exception as error:
            where = traceback.format_exc() if call.function is not None else ""
            return RankAnswer("raised", f"{type(error).__name__}: {error}\n{where}")

    def _by_function(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        assert call.function is not None
        path, module, name = call.function
        if module not in self._modules:
            # The module of a test, which may be no module of a package.
            spec = importlib.util.spec_from_file_location(module, path)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[module] = made = importlib.util.module_from_spec(spec)
            sys.path.insert(0, os.path.dirname(path))
            spec.loader.exec_module(made)
            self._modules[module] = made
        function: Any = self._modules[module]
        for part in name.split("."):
            function = getattr(function, part)
        found = function(sent)
        return list(found) if isinstance(found, (list, tuple)) else [sent if found is None else found]

    def _empty(self, like: torch.Tensor, size: int) -> torch.Tensor:
        """Full of what no result is."""
        made = torch.empty(size, dtype=like.dtype, device=like.device)
        return made.fill_(float("nan")) if like.is_floating_point() else made.fill_(1)

    def reduced(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        dist.all_reduce(sent, _REDUCTIONS[call.reduction], self._groups[call.count])
        return [sent]

    def reduced_to_one(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        dist.reduce(sent, call.root, _REDUCTIONS[call.reduction], self._groups[call.count])
        return [sent]

    def reduced_in_parts(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        got, operation = self._empty(sent, sum(call.pieces)), _REDUCTIONS[call.reduction]
        if call.listed:
            dist.reduce_scatter(got, list(torch.split(sent, list(call.sizes))), operation, self._groups[call.count])
        else:
            dist.reduce_scatter_tensor(got, sent, operation, self._groups[call.count])
        return [got]

    def from_one(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        dist.broadcast(sent, call.root, self._groups[call.count])
        return [sent]

    def in_order(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        if call.listed:
            got = [self._empty(sent, size) for size in call.pieces]
            dist.all_gather(got, sent, self._groups[call.count])
            return got
        whole = self._empty(sent, sum(call.pieces))
        dist.all_gather_into_tensor(whole, sent, self._groups[call.count])
        return [whole]

    def to_one(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        got = [self._empty(sent, size) for size in call.pieces] if self._rank == call.root else None
        dist.gather(sent, got, call.root, self._groups[call.count])
        return got or []

    def parts_of_one(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        parts = list(torch.split(sent, list(call.sizes))) if self._rank == call.root else None
        got = self._empty(sent, sum(call.pieces))
        dist.scatter(got, parts, call.root, self._groups[call.count])
        return [got]

    def parts_of_all(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        got, group = self._empty(sent, sum(call.pieces)), self._groups[call.count]
        dist.all_to_all_single(got, sent, list(call.pieces), list(call.sizes), group)
        return [got]

    def message(self, call: RankCall, sent: torch.Tensor) -> list[torch.Tensor]:
        """From the first rank to the root."""
        if self._rank != call.root:
            dist.send(sent, call.root)
            return []
        got = self._empty(sent, sum(call.pieces))
        dist.recv(got, 0)
        return [got]


_MADE: Mapping[str, Callable[[_Rank, RankCall, torch.Tensor], list[torch.Tensor]]] = {
    "reduced to all": _Rank.reduced,
    "reduced to one": _Rank.reduced_to_one,
    "reduced in parts": _Rank.reduced_in_parts,
    "one to all": _Rank.from_one,
    "all to all in order": _Rank.in_order,
    "all to one": _Rank.to_one,
    "parts of one": _Rank.parts_of_one,
    "parts of all": _Rank.parts_of_all,
    "sent": _Rank.message,
    "received": _Rank.message,
}
