"""Which calls end the process? They run in forked children with limits; each that kills is repeated alone."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

DEADLY = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL}
# Bytes of address space beyond what the parent has, and seconds of CPU, for one child.
MEMORY, SECONDS = 2 << 30, 2
SEARCHED = 4  # deaths of one API after which the next is searched

# Makes the call of a number; first it tells the function that it is given what it will call.
Call: TypeAlias = "Callable[[int, Callable[[str], None]], None]"


class Death(NamedTuple):
    number: int
    signal: str
    text: str
    repeats: bool

    def __str__(self) -> str:
        again = "" if self.repeats else " (not when made alone)"
        return f"{self.signal}{again} {self.number} {self.text}"


class Search:
    """The calls of one API, each made once, in children that may die.

    prepare is run in a child before its first call, and gives what makes them.
    """

    def __init__(self, count: int, prepare: Callable[[], Call]) -> None:
        self.count, self.prepare = count, prepare
        self.progress = mmap.mmap(-1, 4096)

    def deaths(self) -> Iterator[Death]:
        first = found = 0
        while first < self.count and found < SEARCHED:
            status = self._child(range(first, self.count))
            if not os.WIFSIGNALED(status):
                return
            number, text = self._position()
            cause = signal.Signals(os.WTERMSIG(status))
            if cause in DEADLY:
                found += 1
                repeats = os.WIFSIGNALED(self._child(range(number, number + 1)))
                yield Death(number, cause.name, text, repeats)
            first = number + 1

    def _child(self, numbers: range) -> int:
        """The wait status of a child that makes these calls."""
        pid = os.fork()
        if pid == 0:
            self._make(numbers)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def _make(self, numbers: range) -> None:
        limit = _address_space() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        call = self.prepare()
        for number in numbers:
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
            self._note(number, "")
            with contextlib.suppress(Exception):
                call(number, lambda text, number=number: self._note(number, text))  # type: ignore[misc]

    def _note(self, number: int, text: str) -> None:
        self.progress.seek(0)
        self.progress.write(f"{number} {text}"[:4000].encode(errors="replace")[:4090].ljust(4096, b"\0"))

    def _position(self) -> tuple[int, str]:
        self.progress.seek(0)
        number, _, text = self.progress.read().rstrip(b"\0").decode(errors="replace").partition(" ")
        return int(number), text


def flat(value: Any) -> Iterator[Any]:
    """What a result holds, without its lists and tuples."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    else:
        yield value


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
