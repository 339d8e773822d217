"""The processes of --probe-ranks, one for each rank: started when the first collective is made, and anew after one that
hung or killed a rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe.errors import NoKernel, ProbeError
from pytest_probe.features.collectives.matching import listed
from pytest_probe.model.collective import RankCall
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.system.text import printable

# Seconds that others have to end when one rank has raised, and that stacks have to be written.
_GRACE, _STACKS = 5.0, 2.0
_FRAMES = 6
# The share of --probe-timeout that a collective has: what waits for it is ended by the whole.
_SHARE = 0.8


class RanksFailed(ProbeError):
    """A collective did not end on all ranks; stacks are those of the ranks that still ran, innermost first."""

    def __init__(self, message: str, stacks: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stacks = stacks


class _Process(Struct):
    rank: int
    popen: subprocess.Popen[bytes]
    pipe: Connection
    stacks: Path


class Processes:
    """timeout: the seconds of --probe-timeout, 0: a collective takes as long as it likes."""

    def __init__(self, ranks: int, backend: str, program: str, timeout: float) -> None:
        self.ranks = ranks
        self._backend, self._program, self._seconds = backend, program, _SHARE * timeout
        self._running: list[_Process] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def make(self, calls: Sequence[RankCall]) -> list[list[AnyArray]]:
        """What each rank received. Raises RanksFailed where one raised, died or did not end, NoKernel where the
        backend is not there; the next call starts new processes then."""
        # To start them takes time as well.
        limit = time.monotonic() + self._seconds if self._seconds else float("inf")
        try:
            if not self._running:
                self._start(limit)
            for process, call in zip(self._running, calls, strict=True):
                with suppress(BrokenPipeError):
                    process.pipe.send(call)
            return [received for _, received in self._answers(limit).values()]
        except (ProbeError, KeyboardInterrupt):
            self.close()
            raise

    def _start(self, limit: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="probe-ranks-")
        folder = Path(self._folder.name)
        for rank in range(self.ranks):
            ours, theirs = Pipe()
            stacks = folder / f"stacks{rank}"
            given = (rank, self.ranks, self._backend, folder / "store", stacks, theirs.fileno())
            command = [sys.executable, "-m", self._program, *map(str, given)]
            popen = subprocess.Popen(command, env=_environment(), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
            theirs.close()
            self._running.append(_Process(rank, popen, ours, stacks))
        self._answers(limit)

    def _answers(self, limit: float) -> Mapping[int, tuple[str, Any]]:
        """One of each rank, in their order, before a time."""
        found: dict[int, tuple[str, Any]] = {}
        while len(found) < len(self._running):
            waiting = {process.pipe: process for process in self._running if process.rank not in found}
            left = limit - time.monotonic()
            ready = wait(list(waiting), None if left == float("inf") else max(0.0, left))
            if not ready:
                self._give_up(found, list(waiting.values()))
            for pipe in ready:
                process = waiting[pipe]  # type: ignore[index]
                found[process.rank] = self._answer(process)
            if any(kind == "raised" for kind, _ in found.values()):
                limit = min(limit, time.monotonic() + _GRACE)
        self._raise(found)
        return dict(sorted(found.items()))

    def _answer(self, process: _Process) -> tuple[str, Any]:
        try:
            answer: tuple[str, Any] = process.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise RanksFailed(f"rank {process.rank} of {self.ranks} died: {_death(process.popen)}") from None
        return answer

    def _give_up(self, found: Mapping[int, tuple[str, Any]], waiting: Sequence[_Process]) -> None:
        """Raises RanksFailed."""
        self._raise(found)
        stacks = [f"rank {each.rank}: {_stack(each)}" for each in waiting]
        those = f"{'rank' if len(waiting) == 1 else 'ranks'} {listed([each.rank for each in waiting])}"
        raise RanksFailed(f"{those} of {self.ranks} did not end within {self._seconds:g} s", stacks)

    def _raise(self, found: Mapping[int, tuple[str, Any]]) -> None:
        for rank, (kind, value) in sorted(found.items()):
            if kind == "unavailable":
                raise NoKernel(str(value))
            if kind == "raised":
                first, _, rest = str(value).partition("\n")
                raise RanksFailed(f"rank {rank} of {self.ranks} raised {first}", [rest] if rest else [])

    def close(self) -> None:
        """End all processes."""
        for process in self._running:
            process.pipe.close()
            process.popen.kill()
        for process in self._running:
            process.popen.wait()
        self._running = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _environment() -> dict[str, str]:
    """Ranks of this machine meet on its own interface; the user may say another."""
    named = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return {**named, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _death(popen: subprocess.Popen[bytes]) -> str:
    try:
        code = popen.wait(_STACKS)
    except subprocess.TimeoutExpired:
        return "it closed its pipe"
    if code >= 0:
        return f"exit status {code}"
    with suppress(ValueError):
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"signal {-code}"


def _stack(process: _Process) -> str:
    """Where the process is, innermost first, in one line."""
    with suppress(OSError):
        process.popen.send_signal(signal.SIGUSR1)
    end = time.monotonic() + _STACKS
    while not process.stacks.stat().st_size and time.monotonic() < end:
        time.sleep(0.02)
    lines = [line.strip() for line in process.stacks.read_text(errors="replace").splitlines() if "File" in line]
    return printable("; ".join(lines[:_FRAMES])) or "it says nothing"
