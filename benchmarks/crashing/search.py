"""The calls of one API, each made once in forked children with limits; one that kills its child is repeated alone."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

DEADLY = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL}
# Bytes of address space beyond what the parent has, and seconds of CPU, for one child.
MEMORY, SECONDS = 2 << 30, 2
SEARCHED = 4  # deaths of one API after which the next is searched

# Makes the call of a number; first it hands the call's text to the function that it is given.
Call: TypeAlias = "Callable[[int, Callable[[str], None]], None]"


class Subject(Struct, frozen=True):
    """One API; prepare takes a seed and whether calls that pytest_probe refuses are left out, in the child."""

    name: str
    prepare: Callable[[int, bool], Call]


def deaths(count: int, prepare: Callable[[], Call]) -> Iterator[str]:
    """Signal, number and text of each of the first calls that end their child."""
    progress = mmap.mmap(-1, 4096)
    first = found = 0
    while first < count and found < SEARCHED:
        status = _child(range(first, count), prepare, progress)
        if not os.WIFSIGNALED(status):
            return
        number, _, text = progress[:].rstrip(b"\0").decode(errors="replace").partition(" ")
        first, cause = int(number) + 1, signal.Signals(os.WTERMSIG(status))
        if cause in DEADLY:
            found += 1
            repeats = os.WIFSIGNALED(_child(range(first - 1, first), prepare, progress))
            yield f"{cause.name}{'' if repeats else ' (not when made alone)'} {number} {text}"


def _child(numbers: range, prepare: Callable[[], Call], progress: mmap.mmap) -> int:
    """The wait status of a child that makes these calls."""
    pid = os.fork()
    if pid == 0:
        _make(numbers, prepare, progress)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def _make(numbers: range, prepare: Callable[[], Call], progress: mmap.mmap) -> None:
    def note(number: int, text: str) -> None:
        progress[:] = f"{number} {text}"[:4000].encode(errors="replace")[:4090].ljust(4096, b"\0")

    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    call = prepare()
    for number in numbers:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS, resource.RLIM_INFINITY))
        note(number, "")
        with contextlib.suppress(Exception):
            call(number, lambda text, number=number: note(number, text))  # type: ignore[misc]


def flat(value: Any) -> Iterator[Any]:
    """What a result holds, without its lists and tuples."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    else:
        yield value
