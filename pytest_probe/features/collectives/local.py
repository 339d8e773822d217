"""Processes of ranks on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from pytest_probe.errors import NoKernel
from pytest_probe.frameworks.rank_process import RankAnswers, RankProcess
from pytest_probe.model.collective import RankAnswer, RankCall, RankStart


class LocalRanks:
    """They meet by a file: no port is taken."""

    def __init__(self) -> None:
        self._processes: list[RankProcess] = []
        self._answers: RankAnswers = SimpleQueue()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self, ranks: int, backend: str, program: str, seconds: float) -> None:
        """Waits for none of them."""
        # Ranks of one machine meet on its own interface; the user may say another.
        named = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="probe-ranks-")
            folder = Path(self._folder.name)
            self._answers = SimpleQueue()
            for rank in range(ranks):
                start = RankStart(rank, ranks, backend, rank, f"file://{folder}/store", f"{folder}/stacks{rank}")
                self._processes.append(RankProcess(program, start, {**named, **os.environ}, self._answers))
        except OSError as error:
            raise NoKernel(f"{ranks} processes cannot be started on this machine: {error}") from None

    def send(self, rank: int, call: RankCall) -> None:
        self._processes[rank].send(call)

    def answers(self, ranks: Collection[int], seconds: float) -> Mapping[int, RankAnswer]:
        with suppress(Empty):
            return dict([self._answers.get(timeout=None if seconds == float("inf") else max(0.0, seconds))])
        return {}

    def stacks(self, ranks: Sequence[int], seconds: float) -> Sequence[str]:
        end = time.monotonic() + seconds
        for rank in ranks:
            self._processes[rank].ask_stack()
        return [self._processes[rank].stack(end) for rank in ranks]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.close()
        self._processes = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
