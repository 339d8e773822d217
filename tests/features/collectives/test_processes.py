"""What becomes of a collective when a rank, a pool or the run itself fails: the pool here is a list of answers."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.errors import NoKernel
from pytest_probe.features.collectives.processes import LocalRanks, Processes, RanksFailed
from pytest_probe.model.collective import RankAnswer, RankCall

CALLS = [RankCall("reduced to all", "total", 2, 0, np.zeros(1, np.float32), ())] * 2
READY = {0: RankAnswer("ready", ""), 1: RankAnswer("ready", "")}
RECEIVED = {0: RankAnswer("received", [0]), 1: RankAnswer("received", [1])}


class Pool:
    """Gives answers in their order; an exception is raised."""

    def __init__(self, *answers: Mapping[int, RankAnswer] | BaseException) -> None:
        self._answers = [*answers]
        self.done: list[str] = []

    def start(self, ranks: int, backend: str, program: str, seconds: float) -> None:
        self.done.append("start")

    def send(self, rank: int, call: RankCall) -> None:
        self.done.append("send")

    def answers(self, ranks: Collection[int], seconds: float) -> Mapping[int, RankAnswer]:
        found = self._answers.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def stacks(self, ranks: Sequence[int], seconds: float) -> Sequence[str]:
        return [f"stack of {rank}" for rank in ranks]

    def close(self) -> None:
        self.done.append("close")


def made(pool: Pool) -> Sequence[Any]:
    return Processes(pool, 2, "gloo", "program", 10.0).make(CALLS)


def test_processes_are_started_once() -> None:
    pool = Pool(READY, RECEIVED, RECEIVED)
    processes = Processes(pool, 2, "gloo", "program", 10.0)
    assert [processes.make(CALLS), processes.make(CALLS)] == [[[0], [1]]] * 2
    processes.close()
    processes.close()
    assert pool.done == ["start", "send", "send", "send", "send", "close"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), pytest.fail.Exception("by another plugin"), MemoryError()])
def test_answers_that_nobody_read_are_not_those_of_the_next_call(ending: BaseException) -> None:
    pool = Pool(READY, ending, READY, RECEIVED)
    processes = Processes(pool, 2, "gloo", "program", 10.0)
    with pytest.raises(type(ending)):
        processes.make(CALLS)
    assert processes.make(CALLS) == [[0], [1]]
    assert pool.done == ["start", "send", "send", "close", "start", "send", "send"]


def test_where_a_machine_went_away_the_call_is_made_once_more() -> None:
    lost = {1: RankAnswer("lost", "its node went away")}
    assert made(Pool(READY, lost, READY, RECEIVED)) == [[0], [1]]
    with pytest.raises(RanksFailed, match="rank 1 of 2 died: its node went away"):
        made(Pool(READY, lost, READY, lost))


def test_processes_that_cannot_start_are_not_tried_again() -> None:
    pool = Pool({1: RankAnswer("unavailable", "no such backend")}, {})
    processes = Processes(pool, 2, "gloo", "program", 10.0)
    for _ in range(2):
        with pytest.raises(NoKernel, match="no such backend"):
            processes.make(CALLS)
    assert pool.done == ["start", "close"]


def test_a_rank_that_raised_is_named_and_not_those_that_wait_for_it() -> None:
    raised = {0: RankAnswer("raised", "ValueError: no\nwhere")}
    with pytest.raises(RanksFailed, match="rank 0 of 2 raised ValueError: no") as found:
        made(Pool(READY, raised, {}))
    assert found.value.stacks == ["where"]


def test_a_rank_that_hangs_is_told_with_its_stack() -> None:
    with pytest.raises(RanksFailed, match="rank 1 of 2 did not end within 8 s") as found:
        made(Pool(READY, {0: RECEIVED[0]}, {}))
    assert found.value.stacks == ["rank 1: stack of 1"]


def test_processes_that_this_machine_does_not_start_are_a_skip() -> None:
    """A process has room for so many pipes only."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, before[1]))
    try:
        with pytest.raises(NoKernel, match=r"64 processes cannot be started on this machine: .*Too many open files"):
            Processes(LocalRanks(), 64, "gloo", "this", 10.0).make([])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
def test_ranks_that_are_stopped_are_one_error_with_their_stacks_in_time() -> None:
    pool = LocalRanks()
    processes = Processes(pool, 4, "gloo", "pytest_probe.frameworks.torch.ranks", 60.0)
    calls = [RankCall("reduced to all", "total", 4, 0, np.zeros(1 << 20, np.float32), ())] * 4
    assert processes.make(calls)[0][0].size == 1 << 20
    stopped = [process._popen.pid for process in pool._processes]
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    processes._seconds, processes._patience = 2.0, 5.0
    with pytest.raises(RanksFailed, match="ranks 0 to 3 of 4 did not end within 2 s") as found:
        processes.make(calls)
    for rank, stack in enumerate(found.value.stacks):
        assert stack.startswith(f"rank {rank}: File")
    assert not any(map(lives, stopped))


def lives(process: int) -> bool:
    """Is it there, and no zombie?"""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# It starts two ranks that never come to the end of their imports, and waits.
PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pytest_probe.features.collectives.processes import LocalRanks
pool = LocalRanks()
pool.start(2, "gloo", "imports", 10.0)
print(*(each._popen.pid for each in pool._processes), flush=True)
time.sleep(60)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "imports.py").write_text(
        f"import time\nopen({str(tmp_path / 'begun')!r}, 'a').write('x')\ntime.sleep(60)\n"
    )
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    process: subprocess.Popen[str] = subprocess.Popen(command, start_new_session=True, **streams)  # type: ignore[call-overload]
    end = time.monotonic() + 60
    while not ((tmp_path / "begun").exists() and (tmp_path / "begun").stat().st_size == 2) and time.monotonic() < end:
        time.sleep(0.02)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_ranks_do_not_outlive_a_killed_parent(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    ranks = [int(word) for word in parent.stdout.readline().split()]
    assert all(map(lives, ranks))
    parent.kill()
    parent.wait()
    end = time.monotonic() + 60
    while any(map(lives, ranks)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(lives, ranks))


@pytest.mark.slow
def test_an_interrupt_is_for_the_parent_alone(parent: subprocess.Popen[str]) -> None:
    os.killpg(parent.pid, signal.SIGINT)
    _, said = parent.communicate(timeout=30)
    assert said.count("KeyboardInterrupt") == 1
