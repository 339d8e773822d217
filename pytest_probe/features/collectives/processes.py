"""The processes of --probe-ranks, one for each rank: started when the first collective is made, and anew after one that
hung or killed a rank."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from pytest_probe.errors import NoKernel, ProbeError
from pytest_probe.features.collectives.matching import named
from pytest_probe.frameworks.rank_process import RankAnswers, RankProcess
from pytest_probe.model.collective import RankAnswer, RankCall, RankPool, RankStart
from pytest_probe.numerics.dtypes import AnyArray

# Seconds that others have to end when one rank has raised.
_GRACE = 5.0
# The share of --probe-timeout that a collective has: what waits for it is ended by the whole. And the share in which
# ranks that did not end say where they are, at most so many seconds.
_SHARE, _STACKS_SHARE, _STACKS = 0.8, 0.05, 2.0
# Kinds of answers behind which a rank ends.
_ENDS = ("raised", "unavailable")


class RanksFailed(ProbeError):
    """A collective did not end on all ranks; stacks are those of the ranks that still ran, innermost first."""

    def __init__(self, message: str, stacks: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stacks = stacks


class _RankLost(RanksFailed):
    """The machine of a rank has gone."""


class Processes:
    """Of a pool. timeout: the seconds of --probe-timeout, 0: a collective takes as long as it likes."""

    def __init__(self, pool: RankPool, ranks: int, backend: str, program: str, timeout: float) -> None:
        self.ranks = ranks
        self._pool, self._backend, self._program = pool, backend, program
        self._seconds = _SHARE * timeout
        self._patience = min(_STACKS, _STACKS_SHARE * timeout) if timeout else _STACKS
        self._runs = False
        # Why they cannot be started, which each collective would find anew after seconds.
        self._refused: NoKernel | None = None

    def make(self, calls: Sequence[RankCall]) -> list[list[AnyArray]]:
        """What each rank received. Raises RanksFailed where one raised, died or did not end: the next call starts new
        processes then. Raises NoKernel where there can be no such processes."""
        if self._refused is not None:
            raise self._refused
        # The limit holds for the start of the processes as well.
        limit = time.monotonic() + self._seconds if self._seconds else float("inf")
        try:
            return self._made(calls, limit)
        except _RankLost:
            return self._made(calls, limit)
        except NoKernel as error:
            self._refused = error
            raise

    def _made(self, calls: Sequence[RankCall], limit: float) -> list[list[AnyArray]]:
        try:
            if not self._runs:
                self._runs = True
                self._pool.start(self.ranks, self._backend, self._program, limit - time.monotonic())
                self._answers(limit)
            for rank, call in enumerate(calls):
                self._pool.send(rank, call)
            return [answer.value for answer in self._answers(limit)]
        except BaseException:
            # Answers that nobody has read would be taken for those of the next call.
            self.close()
            raise

    def _answers(self, limit: float) -> Sequence[RankAnswer]:
        """One of each rank, in their order, before a time. Raises RanksFailed, NoKernel."""
        found: dict[int, RankAnswer] = {}
        while len(found) < self.ranks:
            waiting = [rank for rank in range(self.ranks) if rank not in found]
            came = self._pool.answers(waiting, limit - time.monotonic())
            if not came:
                self._check(found)
                where = self._pool.stacks(waiting, self._patience)
                stacks = [f"rank {rank}: {each}" for rank, each in zip(waiting, where, strict=True)]
                raise RanksFailed(f"{named(waiting)} of {self.ranks} did not end within {self._seconds:g} s", stacks)
            # A rank that has said why it ends may end before the others have said it.
            came = {rank: answer for rank, answer in came.items() if rank not in found or found[rank].kind not in _ENDS}
            found |= came
            for rank, answer in came.items():
                # Others may wait for it for ever.
                if answer.kind in ("died", "lost"):
                    kind = _RankLost if answer.kind == "lost" else RanksFailed
                    raise kind(f"rank {rank} of {self.ranks} died: {answer.value}")
            if any(answer.kind in _ENDS for answer in came.values()):
                limit = min(limit, time.monotonic() + _GRACE)
        self._check(found)
        return [found[rank] for rank in range(self.ranks)]

    def _check(self, found: Mapping[int, RankAnswer]) -> None:
        """Raises RanksFailed, NoKernel."""
        for rank, answer in sorted(found.items()):
            if answer.kind == "unavailable":
                raise NoKernel(str(answer.value))
            if answer.kind == "raised":
                first, _, rest = str(answer.value).partition("\n")
                raise RanksFailed(f"rank {rank} of {self.ranks} raised {first}", [rest] if rest else [])

    def close(self) -> None:
        """End all processes."""
        if self._runs:
            self._runs = False
            self._pool.close()


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
