"""Processes of ranks on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from multiprocessing.connection import wait
from pathlib import Path

from pytest_probe.errors import NoKernel
from pytest_probe.features.collectives.rank_process import RankProcess
from pytest_probe.model.collective import RankAnswer, RankCall, RankStart


class LocalRanks:
    """They meet by a file: no port is taken."""

    def __init__(self) -> None:
        self._processes: list[RankProcess] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self, ranks: int, backend: str, program: str, seconds: float) -> None:
        """Waits for none of them."""
        try:
            self._start(ranks, backend, program)
        except OSError as error:
            raise NoKernel(f"{ranks} processes cannot be started on this machine: {error}") from None

    def _start(self, ranks: int, backend: str, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="probe-ranks-")
        folder = Path(self._folder.name)
        for rank in range(ranks):
            where = f"file://{folder}/store", f"{folder}/stacks{rank}"
            start = RankStart(rank, ranks, backend, os.getpid(), rank, *where)
            self._processes.append(RankProcess(program, start, _environment()))

    def send(self, rank: int, call: RankCall) -> None:
        self._processes[rank].send(call)

    def answers(self, ranks: Collection[int], seconds: float) -> Mapping[int, RankAnswer]:
        waiting = {self._processes[rank].pipe: rank for rank in ranks}
        ready = wait(list(waiting), None if seconds == float("inf") else max(0.0, seconds))
        found = [waiting[pipe] for pipe in ready]  # type: ignore[index]
        return {rank: self._processes[rank].answer() for rank in found}

    def stack(self, rank: int) -> str:
        return self._processes[rank].stack()

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._processes = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _environment() -> Mapping[str, str]:
    """Ranks of one machine meet on its own interface; the user may say another."""
    named = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return {**named, **os.environ}
