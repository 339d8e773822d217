"""The process of one rank, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

from pytest_probe.model.collective import RankAnswer, RankCall, RankStart
from pytest_probe.system.text import printable

# Seconds that a process has to end whose pipe is closed, and that its stack has to be written.
_PATIENCE = 2.0
_FRAMES = 6


class RankProcess:
    """program is the module that it runs. It inherits the socket of start."""

    def __init__(self, program: str, start: RankStart, environment: Mapping[str, str]) -> None:
        self.pipe, theirs = Pipe()
        self._stacks = Path(start.stacks)
        inherited = [theirs.fileno(), *([] if start.listens is None else [start.listens])]
        command = [sys.executable, "-m", program, str(theirs.fileno())]
        path = os.pathsep.join(filter(None, sys.path))
        self._popen = subprocess.Popen(
            command, env={**environment, "PYTHONPATH": path}, pass_fds=inherited, stdin=subprocess.DEVNULL
        )
        theirs.close()
        self.send(start)

    def send(self, what: RankStart | RankCall) -> None:
        """Its answer says where it has died."""
        with suppress(BrokenPipeError):
            self.pipe.send(what)

    def answer(self) -> RankAnswer:
        """Waits for the next one."""
        try:
            found: RankAnswer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return RankAnswer("died", self._death())
        return found

    def stack(self) -> str:
        """Where it is, innermost first, in one line."""
        with suppress(OSError):
            self._popen.send_signal(signal.SIGUSR1)
        end = time.monotonic() + _PATIENCE
        while not self._written() and time.monotonic() < end:
            time.sleep(0.02)
        lines = [line.strip() for line in self._written().splitlines() if "File" in line]
        return printable("; ".join(lines[:_FRAMES])) or "it says nothing"

    def close(self) -> None:
        """End it."""
        self.pipe.close()
        self._popen.kill()
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
