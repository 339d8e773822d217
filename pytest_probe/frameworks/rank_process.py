"""The process of one rank, on this machine. It may stop at any moment: nothing here waits for it without an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from pytest_probe.model.collective import RankAnswer, RankCall, RankStart
from pytest_probe.system.text import printable

# Seconds that a process has to end whose pipe is closed.
_PATIENCE = 2.0
_PROGRAM = "pytest_probe.frameworks.rank_start"
_FRAMES = 6
RankAnswers: TypeAlias = "SimpleQueue[tuple[int, RankAnswer]]"


class RankProcess:
    """program is the module that it runs. It inherits the socket of start, and its answers go to a queue."""

    def __init__(self, program: str, start: RankStart, environment: Mapping[str, str], answers: RankAnswers) -> None:
        self._pipe, theirs = Pipe()
        self._stacks = Path(start.stacks)
        inherited = [theirs.fileno(), *([] if start.listens is None else [start.listens])]
        command = [sys.executable, "-m", _PROGRAM, program, str(theirs.fileno()), str(os.getpid())]
        path = os.pathsep.join(filter(None, sys.path))
        # In a session of its own: Ctrl-C is for the process that ends this one.
        self._popen = subprocess.Popen(
            command,
            env={**environment, "PYTHONPATH": path},
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        threading.Thread(target=self._read, args=(start.rank, answers), daemon=True).start()
        self.send(start)

    def send(self, what: RankStart | RankCall) -> None:
        """Does not wait until it is read. Its answer says where it has died."""
        threading.Thread(target=self._send, args=(what,), daemon=True).start()

    def _send(self, what: RankStart | RankCall) -> None:
        with suppress(OSError):
            self._pipe.send(what)

    def _read(self, rank: int, answers: RankAnswers) -> None:
        with self._pipe, suppress(EOFError, OSError):
            while True:
                answers.put((rank, self._pipe.recv()))
        answers.put((rank, RankAnswer("died", self._death())))

    def ask_stack(self) -> None:
        """One that is stopped goes on before it is asked."""
        with suppress(OSError):
            self._popen.send_signal(signal.SIGCONT)
            self._popen.send_signal(signal.SIGUSR1)

    def stack(self, end: float) -> str:
        """Where it was when it was asked, innermost first, in one line, waited for until then."""
        # Any thread may take the signal, so all are written, in parts; the one that makes calls is the last.
        while "in _run_module_as_main\n" not in self._written() and time.monotonic() < end:
            time.sleep(0.02)
        last = self._written().rpartition("(most recent call first):")[2]
        lines = [line.strip() for line in last.splitlines() if "File" in line]
        return printable("; ".join(lines[:_FRAMES])) or "it says nothing"

    def kill(self) -> None:
        self._popen.kill()

    def close(self) -> None:
        """End it."""
        self.kill()
        self._popen.wait()

    def _written(self) -> str:
        try:
            return self._stacks.read_text(errors="replace")
        except OSError:  # it has not begun
            return ""

    def _death(self) -> str:
        try:
            code = self._popen.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        if code >= 0:
            return f"exit status {code}"
        with suppress(ValueError):
            return f"signal {-code} ({signal.Signals(-code).name})"
        return f"signal {-code}"
