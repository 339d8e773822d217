"""--probe-timeout: a case that takes longer ends its process, which is the only end of a kernel that hangs.

Native code that hangs holds the GIL, so that no Python thread can end it. faulthandler's timer can: it needs none.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from pytest_probe.reports.running import RunningFile

# What the timer writes goes to stderr, and into a file that a run that goes on finds. A process of its own does that:
# the one that hangs is at its end.
_COPY = """
import sys
said = sys.stdin.buffer.read()
if said:
    with open(sys.argv[1], "wb") as file:
        file.write(said)
    sys.stderr.buffer.write(said)
"""


def pytests_limit(config: pytest.Config) -> float:
    """Seconds of pytest's own faulthandler_timeout, which uses the same timer; 0 where it is not set."""
    if not config.pluginmanager.hasplugin("faulthandler"):
        return 0.0
    return float(config.getini("faulthandler_timeout") or 0)


def header(config: pytest.Config, seconds: float) -> list[str]:
    """A line about which of the two limits is armed, where there are two."""
    other = pytests_limit(config)
    if not (seconds and other):
        return []
    if other < seconds:
        return [
            f"probe: cases are limited by pytest's faulthandler_timeout={other:g} s alone, which is shorter than "
            f"--probe-timeout={seconds:g} s"
        ]
    return [
        f"probe: cases are limited by --probe-timeout={seconds:g} s, which is not longer than pytest's "
        f"faulthandler_timeout={other:g} s"
    ]


class Limit:
    """Arms the timer for each case; seconds 0: never. told: what the timer writes has to outlast the process there,
    None where another process survives to say so."""

    def __init__(self, config: pytest.Config, seconds: float, file: RunningFile | None, told: Path | None) -> None:
        other = pytests_limit(config)
        self._seconds = 0.0 if 0 < other < seconds else seconds
        self._file = file
        self._armed = False
        self._stderr = _stderr() if self._seconds else None
        self._copier = _copier(told, self._stderr) if told is not None and self._stderr is not None else None

    @contextmanager
    def case(self) -> Iterator[None]:
        """One case runs in here, with all its runs."""
        if not self._seconds:
            yield
            return
        self._arm()
        try:
            yield
        finally:
            self._disarm()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The case waits in here for another process; all of its time is left to it afterwards."""
        if not self._armed:
            yield
            return
        self._disarm()
        if self._file is not None:
            self._file.limit(0)
        try:
            yield
        finally:
            self._arm()

    def _arm(self) -> None:
        if self._file is not None:
            self._file.limit(self._seconds)
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._told())
        self._armed = True

    def _disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._armed = False

    def close(self) -> None:
        for file in (None if self._copier is None else self._copier.stdin, self._stderr):
            if file is not None:
                with suppress(OSError):
                    file.close()
        if self._copier is not None:
            self._copier.wait()

    def _told(self) -> IO[bytes]:
        file = self._stderr if self._copier is None else self._copier.stdin
        assert file is not None
        return file


def _stderr() -> IO[bytes]:
    """The real one, which pytest does not capture."""
    assert sys.__stderr__ is not None
    return os.fdopen(os.dup(sys.__stderr__.fileno()), "wb", buffering=0)


def _copier(told: Path, stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-c", _COPY, str(told)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
