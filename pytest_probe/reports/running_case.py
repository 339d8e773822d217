"""What a process runs, in a small file for whoever survives its death, and what is said of a case that it died of.

The file is rewritten before each side of a case. Other files of the same folder count the deaths of each case, and list
the calls of searches that ended their process, which the next process does not make again.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from msgspec import Struct, structs

from pytest_probe.errors import NoReference, OutOfMemory
from pytest_probe.model.result import AnnouncedCall, FatalCall
from pytest_probe.model.run import Side
from pytest_probe.model.verdict import Verdict

FOLDER, _DEATHS = "running", "deaths.jsonl"
# The process of a run without workers, and what its timer wrote at its end.
MAIN, TIMER = "main", "timer.txt"
_END = ".json"
_FATAL_CALLS = "fatal_calls.jsonl"
CRASH, TIMEOUT = "crash", "timeout"
T = TypeVar("T")
# kill -9, as subprocess reports it, also on systems where it has no name.
_KILLED = -9
# The exit status of a process at its limit: by SIGALRM where there is one, or by faulthandler's timer.
_LIMITED = (-14, 1)
# Words for what runs, in the sentence about a death.
_WHAT = {"device": "the device ran it", "reference": "its reference ran", "": "it ran"}
_VMSTAT = Path("/proc/vmstat")


class Running(msgspec.Struct, frozen=True):
    """What a process runs: an item, by node id and by the portable id of its case ("" where it has none), "" between
    items. deadline is when its time limit ends the process, in seconds of time.time(), 0 without one; call is
    the call that a search makes; folded counts the cases that the item represents."""

    item: str = ""
    id: str = ""
    side: Side = ""
    deadline: float = 0.0
    call: AnnouncedCall | None = None
    folded: int = 0


class RunningFile:
    """Written by one process. A full disk is no reason to end: what cannot be written is not known later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb", buffering=0)
        self._now = Running()
        self._length = 0

    def begin(self, item: str, id: str, folded: int = 0) -> None:
        """An item begins, or a check of it."""
        self._write(Running(item, id, folded=folded))

    def limit(self, seconds: float) -> None:
        """So much time is left to it; 0: no limit."""
        deadline = time.time() + seconds if seconds else 0.0
        self._write(structs.replace(self._now, deadline=deadline))

    def call(self, call: AnnouncedCall | None) -> None:
        """A search makes this call from now on; None: it draws the next one."""
        self._write(structs.replace(self._now, call=call))

    def side(self, side: Side) -> None:
        """This side of it runs from now on."""
        if side != self._now.side:
            self._write(structs.replace(self._now, side=side))

    def end(self) -> None:
        """It has ended."""
        self._write(Running())

    def close(self) -> None:
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
            self._path.unlink()

    def _write(self, now: Running) -> None:
        # One write, over the whole of the last one: a reader never finds the end of an older line.
        line = msgspec.json.encode(now)
        self._length = max(self._length, len(line))
        self._now = now
        if self._file is not None:
            with suppress(OSError):
                self._file.seek(0)
                self._file.write(line.ljust(self._length) + b"\n")


def file_of(folder: Path, process: str) -> Path:
    """Where a process writes; folder is the run's."""
    return folder / f"{process}{_END}"


def read_running(path: Path) -> Running:
    """What a process that died was running. Nothing where the file is missing or incomplete."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Running()


def case_of_timeout(folder: Path) -> str:
    """The portable id of the case at which the timer ended a run without workers; "" where none did."""
    try:
        timed_out = (folder / TIMER).stat().st_size > 0
    except OSError:
        return ""
    return read_running(file_of(folder, MAIN)).id if timed_out else ""


class Deaths:
    """How often a process died while it ran a case, and which side ran at the last death; kept in a file next to the
    running files, so that a run that goes on knows. folder None: kept nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / _DEATHS
        self._count: Counter[str] = Counter()
        self._last: dict[str, Running] = {}
        for death in _lines(self._path, Running):
            self._note(death)

    def add(self, death: Running) -> int:
        """One more; how often it is now."""
        self._note(death)
        if self._path is not None:
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(death) + b"\n")
        return self._count[death.id]

    def of_earlier_processes(self) -> None:
        """Add what processes ran that have died, by the files that they left."""
        if self._path is None:
            return
        for path in sorted(self._path.parent.glob(f"*{_END}")):
            death = read_running(path)
            if death.id:
                self.add(death)
            path.unlink(missing_ok=True)

    def last(self) -> Iterator[tuple[Running, int]]:
        """The last death of each case, and how many it had."""
        for name, death in self._last.items():
            yield death, self._count[name]

    def _note(self, death: Running) -> None:
        self._count[death.id] += 1
        self._last[death.id] = death


def clear(folder: Path, *, finished: bool) -> None:
    """Remove the folder at the end of a run; finished: deaths count no more, since nothing is left to run."""
    with suppress(OSError):
        for lock in folder.glob("*.lock"):
            lock.unlink()
        if finished:
            for name in (_DEATHS, _FATAL_CALLS):
                (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def add_fatal_call(folder: Path, found: FatalCall) -> None:
    """Add one. A disk that takes no more is no reason to end: the next process dies of the call again."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _FATAL_CALLS).open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")


def fatal_calls_of(folder: Path | None, id: str) -> list[FatalCall]:
    """The fatal calls of one search, by its portable id. folder None: nobody has noted any."""
    path = None if folder is None else folder / _FATAL_CALLS
    return [each for each in _lines(path, FatalCall) if each.id == id]


def _lines(path: Path | None, kind: type[T]) -> Iterator[T]:
    """What can be read of a file of JSON lines, if there is one."""
    for line in path.read_bytes().splitlines() if path is not None and path.exists() else ():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield msgspec.json.decode(line, type=kind)


class Ending(Struct, frozen=True):
    """How a process ended: its exit status, negative for a signal as in subprocess, None where nobody knows; and
    whether the machine's memory ran out meanwhile."""

    status: int | None
    memory_ran_out: bool = False

    @property
    def killed(self) -> bool:
        """Was it ended from outside, as by kill -9?"""
        return self.status == _KILLED

    @property
    def description(self) -> str:
        if self.status is None:
            return "in a way that nobody saw"
        if self.status >= 0:
            return f"with exit status {self.status}"
        with suppress(ValueError):
            return f"by {signal.Signals(-self.status).name}"
        return f"by signal {-self.status}"


def by_limit(death: Running, status: int | None) -> bool:
    """Was it --probe-timeout that ended the process?"""
    return status in _LIMITED and 0 < death.deadline <= time.time()


def verdict_on(death: Running, ending: Ending, *, times: int, timed_out: bool) -> Verdict:
    """The verdict on a case that a process died of: an error of the kind crash, timeout or out of memory; a skip where
    the reference ran. times is how often it died, timed_out whether the last time was by --probe-timeout."""
    how = "was ended by --probe-timeout" if timed_out else f"died {ending.description}"
    what = f"the process {how} while {_WHAT[death.side]}"
    if death.call is not None:
        what += f": {death.call}"
    if times > 1:
        what += f"; that was death {times} of this case, which is not run again"
    if death.side == "reference":
        return Verdict("skip", "", what, NoReference.kind)
    if ending.killed and ending.memory_ran_out:
        return Verdict("error", "", f"{what}: the machine's memory ran out", OutOfMemory.kind)
    return Verdict("error", "", what, TIMEOUT if timed_out else CRASH)


def memory_kills() -> int:
    """How many processes of this machine Linux has killed for memory; 0 where that is not known."""
    with suppress(OSError, ValueError):
        for line in _VMSTAT.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
