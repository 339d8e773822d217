"""Python programs as forks of one process that has imported torch, pytest and this package: each import anew takes
three seconds.

They are processes of their own, with a folder, an environment, arguments, output, a status and limits. What hangs on
when a framework is imported needs a new interpreter, as `subprocess` starts it.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support import fork_server
from tests.support.fork_server import LIMIT

POSSIBLE = sys.platform == "linux" and find_spec("torch") is not None
# Of this process, as torch needs it; a test may have changed it when the first program is asked for.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@functools.cache
def _server() -> socket.socket:
    """What its requests are sent to. It ends with this process, which alone has the other end."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, fork_server.__file__, str(its.fileno())]
        subprocess.Popen(command, env=ENVIRONMENT, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
    return ours


class Fork(fork_server.Fork):
    """`python ARGS`, as a fork of this process's server."""

    def __init__(
        self, args: Sequence[str], folder: Path, environment: Mapping[str, str], streams: tuple[int, int, int]
    ) -> None:
        super().__init__(_server(), args, folder, environment, streams)


class Program(Fork):
    """One that goes on beside the test: what it says, of both streams, is kept in a file until it is asked for."""

    def __init__(self, args: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        with open(os.devnull) as empty:
            streams = (empty.fileno(), self._said.fileno(), self._said.fileno())
            super().__init__(args, folder, environment, streams)

    def communicate(self, timeout: float | None = LIMIT) -> tuple[str, None]:
        self.wait(timeout)
        with self._said:
            self._said.seek(0)
            return self._said.read(), None


def run(args: Sequence[Any], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`python ARGS` until it ends, as `subprocess.run` gives it."""
    if not POSSIBLE:
        command = [sys.executable, *args]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as empty:
        status = Fork(args, folder, environment, (empty.fileno(), out.fileno(), err.fileno())).wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(args, status, out.read(), err.read())


def in_ranks(count: int, words: Callable[[int], Sequence[Any]], folder: Path) -> None:
    """So many programs at once, of which each is `python WORDS`, by its number; all must end well."""
    programs: list[Program | subprocess.Popen[str]] = []
    try:
        for rank in range(count):
            if POSSIBLE:
                programs.append(Program(words(rank), folder, os.environ))
            else:
                command = [sys.executable, *words(rank)]
                programs.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True))
        said = [each.communicate(timeout=LIMIT)[0] for each in programs]
    finally:
        for each in programs:
            each.kill()
    assert [each.returncode for each in programs] == [0] * count, "\n".join(said)


def fork_programs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that pytester runs are forks."""
    if not POSSIBLE:
        return

    def popen(cmdargs: Sequence[str], stdout: IO[str], stderr: IO[str], **_: Any) -> Fork:
        path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        with open(os.devnull) as empty:
            streams = (empty.fileno(), stdout.fileno(), stderr.fileno())
            return Fork(cmdargs[1:], Path.cwd(), {**os.environ, "PYTHONPATH": path}, streams)

    monkeypatch.setattr(pytester, "popen", popen)


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a run of pytest in this process are forks."""
    if not POSSIBLE:
        return
    from execnet.gateway_io import Popen2IOMaster

    monkeypatch.setattr(Popen2IOMaster, "__init__", fork_server.beginning(Fork))
