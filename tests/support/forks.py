"""Python programs as forks of one process that has imported torch and pytest: each import anew takes two seconds.

They are processes of their own, with a folder, an environment, arguments, output, a status and limits. What hangs on
when a framework is imported needs a new interpreter, as `subprocess` starts it.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, ClassVar

import pytest

SERVER = Path(__file__).with_name("fork_server.py")
POSSIBLE = sys.platform == "linux" and find_spec("torch") is not None
LIMIT = 1200
# Of this process, as torch needs it; a test may have changed it when the first program is asked for.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@functools.cache
def _server() -> socket.socket:
    """What its requests are sent to. It ends with this process, which alone has the other end."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, str(SERVER), str(its.fileno())]
        subprocess.Popen(command, env=ENVIRONMENT, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
    return ours


class Fork:
    """`python ARGS`: what is used of a `Popen`."""

    # What all that have ended took.
    seconds: ClassVar[float] = 0.0

    def __init__(
        self, args: Sequence[str], folder: Path, environment: Mapping[str, str], streams: tuple[int, int, int]
    ) -> None:
        request = {"args": [*map(str, args)], "folder": str(folder), "environment": dict(environment)}
        self._report, its = os.pipe()
        socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, its])
        os.close(its)
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.pid: int = struct.unpack("i", os.read(self._report, 4))[0]

    def wait(self, timeout: float | None = LIMIT) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                self.kill()
            self.returncode, seconds = struct.unpack("id", os.read(self._report, struct.calcsize("id")))
            Fork.seconds += seconds
            os.close(self._report)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None and not select.select([self._report], [], [], 0)[0]:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


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
    from execnet.gateway_base import Popen2IO
    from execnet.gateway_io import Popen2IOMaster

    def begin(self: Any, args: Sequence[str], execmodel: Any) -> None:
        (its_input, to), (from_, its_output) = os.pipe(), os.pipe()
        self.popen = Fork(args[1:], Path.cwd(), os.environ, (its_input, its_output, 2))
        os.close(its_input)
        os.close(its_output)
        self.popen.stdin, self.popen.stdout = os.fdopen(to, "wb"), os.fdopen(from_, "rb")
        Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)

    monkeypatch.setattr(Popen2IOMaster, "__init__", begin)
