"""--probe-timeout: a case that takes longer ends its process, which is the only end of a kernel that hangs.

Native code that hangs holds the GIL, so that no Python thread can end it. An alarm of the system can: faulthandler
writes the stacks then, and the signal ends the process. Without an alarm, or if others use it, faulthandler's timer
does the same; it is a thread that each case has to start and to wait for.

Without workers a small process copies the stacks from a file, because nobody else could say later that it was the
limit. benchmarks/limit_cost.py measures what a limit costs.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from pytest_probe.errors import SettingsError
from pytest_probe.options import NAMED
from pytest_probe.plugin.feature import Feature
from pytest_probe.reports.running_case import RunningFile

# The stacks go into a file that a run that goes on finds, and from there to stderr. A process of its own does that,
# when its input ends: the one that hangs is at its end.
_COPY = """
import sys
with open(sys.argv[1], "rb") as file:
    sys.stdin.read()
    stacks = file.read()
    if stacks:
        sys.stderr.buffer.write(sys.argv[2].encode() + stacks)
"""
_WORDS = "\nprobe: a case took longer than --probe-timeout={:g} s, so this process was ended; its stacks:\n"


class Timeout(Feature):
    def pytest_report_header(self) -> list[str]:
        """A line about which of the two limits is armed, where there are two."""
        seconds, other = self.probe.settings.timeout, _pytests_limit(self.probe.config)
        if not (seconds and other):
            return []
        own, pytests = f"--probe-timeout={seconds:g} s", f"faulthandler_timeout={other:g} s"
        if other < seconds:
            return [f"probe: cases are limited by pytest's {pytests} alone, which is shorter than {own}"]
        return [f"probe: cases are limited by {own}, which is not longer than pytest's {pytests}"]

    def limit(self, file: RunningFile | None, stacks: Path | None) -> Limit:
        return Limit(self.probe.config, self.probe.settings.timeout, file, stacks)


def _pytests_limit(config: pytest.Config) -> float:
    """Seconds of pytest's own faulthandler_timeout, which uses the same timer; 0 where it is not set."""
    if not config.pluginmanager.hasplugin("faulthandler"):
        return 0.0
    return float(config.getini("faulthandler_timeout") or 0)


class Limit:
    """Sets the alarm for each case; seconds 0: never. stacks: a file that has to outlast the process there, None where
    another process survives to say so. Raises SettingsError."""

    def __init__(self, config: pytest.Config, seconds: float, file: RunningFile | None, stacks: Path | None) -> None:
        other = _pytests_limit(config)
        self._seconds = 0.0 if 0 < other < seconds else seconds
        self._file = file
        self._armed = self._by_alarm = False
        self._stderr: IO[bytes] | None = None
        if self._seconds:
            # The real one, which pytest does not capture.
            assert sys.__stderr__ is not None
            self._stderr = os.fdopen(os.dup(sys.__stderr__.fileno()), "wb", buffering=0)
        self._stacks: IO[bytes] | None = None
        self._copier: subprocess.Popen[bytes] | None = None
        if stacks is None or self._stderr is None:
            return
        # A disk that takes nothing is no reason to end: stderr has the stacks then.
        with suppress(OSError):
            self._stacks = stacks.open("wb", buffering=0)
        if self._stacks is None:
            return
        command = [sys.executable, "-I", "-S", "-c", _COPY, self._stacks.name, _WORDS.format(self._seconds)]
        try:
            self._copier = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._stderr
            )
        except OSError as error:
            why = f"it needs a process, and this machine refuses one ({error.strerror}): give 0, or end other processes"
            raise SettingsError(NAMED["timeout"].flag, f"{self._seconds:g}", why) from None

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
        # Has the system an alarm that nobody uses? pytest-timeout does, and so may a function under test.
        self._by_alarm = (
            hasattr(signal, "setitimer")
            and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
            and not signal.getitimer(signal.ITIMER_REAL)[0]
        )
        if self._by_alarm:
            # Each time, since code under test may leave another handler, as a run of pytest inside it does.
            faulthandler.register(signal.SIGALRM, file=self._file_of_stacks(), all_threads=True, chain=True)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
        else:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._file_of_stacks())
        self._armed = True

    def _disarm(self) -> None:
        if self._by_alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.unregister(signal.SIGALRM)
        else:
            faulthandler.cancel_dump_traceback_later()
        self._armed = False

    def close(self) -> None:
        for file in (None if self._copier is None else self._copier.stdin, self._stderr, self._stacks):
            if file is not None:
                with suppress(OSError):
                    file.close()
        if self._copier is not None:
            self._copier.wait()
        if self._stacks is not None:
            with suppress(OSError):
                os.unlink(self._stacks.name)

    def _file_of_stacks(self) -> IO[bytes]:
        file = self._stacks or self._stderr
        assert file is not None
        return file
