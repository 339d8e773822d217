"""The thread that writes one step, the room it leaves on the disk, and the counts of what it has written.

It takes entries from a bounded queue, so that training waits for nothing else.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.capture.snapshot import ForwardEntry, NamedEntry

if TYPE_CHECKING:
    from pytest_probe.capture.hooks import CallHooks

# What a capture leaves free of the disk: a share of it, and so many bytes at least.
_MIN_FREE_BYTES = 2_000_000_000
_MIN_FREE_SHARE = 0.05
# The name of the thread that writes: what it asks of a framework is none of the program's.
THREAD = "pytest-probe writer"
_log = logging.getLogger("pytest_probe")
_LOOK_SECONDS = 0.25  # seconds between looks at the queue: what a killed process loses
_QUEUE_ENTRIES = 4096  # entries
_ENTRIES_A_WRITE = 256  # entries in one write
_QUEUE_BYTES = 256 << 20  # of tensors that wait to be saved


class Outcome(Struct, frozen=True):
    """calls and bytes that were written, of so many steps; seconds that those took, as recorded. entries counts
    backwards as well; unseen are calls of compiled functions, in which no call was seen. lost are calls of functions in
    the places of the framework's, by where such a function is written ("train.py:4") and its name."""

    calls: int = 0
    entries: int = 0
    size: int = 0
    steps: int = 0
    seconds: float = 0.0
    unseen: int = 0
    lost: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def plus(self, other: Outcome) -> Outcome:
        """The sum with another step's outcome."""
        together = self.with_process(other)
        return replace(together, steps=self.steps + other.steps, seconds=self.seconds + other.seconds)

    def with_process(self, other: Outcome) -> Outcome:
        """The sum with another process's outcome of the same steps."""
        steps, seconds = max(self.steps, other.steps), max(self.seconds, other.seconds)
        calls, entries, size = self.calls + other.calls, self.entries + other.entries, self.size + other.size
        lost = dict(Counter(self.lost) + Counter(other.lost))
        return Outcome(calls, entries, size, steps, seconds, self.unseen + other.unseen, lost)

    def recorded(self) -> str:
        """ "566 calls of 1 step"."""
        what = f"{self.calls:,} call{'s' * (self.calls != 1)}"
        if self.entries and not self.calls:  # backwards alone were asked for
            what = f"{self.entries:,} backward call{'s' * (self.entries != 1)}"
        return f"{what} of {self.steps} step{'s' * (self.steps != 1)}"

    def missed(self) -> str:
        """ "12 calls of compiled functions were not seen"; "" without any."""
        those = "call of a compiled function was" if self.unseen == 1 else "calls of compiled functions were"
        return "; ".join([*([f"{self.unseen:,} {those} not seen"] if self.unseen else []), *self._lost()])

    def _lost(self) -> Iterator[str]:
        """ "12 calls of 2 functions that train.py:4 replaced were not recorded", for each such line."""
        for origin in dict.fromkeys(origin for origin, _ in self.lost):
            counts = [count for (each, _), count in self.lost.items() if each == origin]
            calls, functions = sum(counts), len(counts)
            those = f"{calls:,} call{'s' * (calls != 1)} of {functions:,} function{'s' * (functions != 1)}"
            yield f"{those} that {origin} replaced {'was' if calls == 1 else 'were'} not recorded"

    def cost(self) -> str:
        """ "1.2 GB and 3.1 s a step"; each is of one step."""
        steps = max(1, self.steps)
        seconds = self.seconds / steps
        shown = f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"
        return f"{in_bytes(self.size / steps)} and {shown} s a step"


def in_bytes(count: float) -> str:
    """ "1.2 GB", "340 kB", "12 bytes"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count:.0f} bytes"


class DiskFills(Exception):
    """Less of the disk is left than a capture leaves free."""


def free(folder: Path) -> int:
    """Bytes that are left where the folder is, or will be. Raises OSError."""
    return shutil.disk_usage(_existing(folder)).free


def check_room(folder: Path) -> None:
    """Raises DiskFills, or OSError."""
    usage = shutil.disk_usage(_existing(folder))
    least = max(_MIN_FREE_BYTES, int(_MIN_FREE_SHARE * usage.total))
    if usage.free < least:
        raise DiskFills(
            f"{in_bytes(usage.free)} of the disk are left, and a capture leaves {in_bytes(least)} free: "
            f"{_MIN_FREE_SHARE:.0%} of it, and {in_bytes(_MIN_FREE_BYTES)} at least"
        )


def _existing(folder: Path) -> Path:
    return next(each for each in chain((folder,), folder.parents) if each.exists())


class StepFiles:
    """The files of one step, in one layout. Each method raises OSError."""

    def check_room(self, folder: Path) -> None:
        """Raises DiskFills, or OSError, where no more must be written there."""
        check_room(folder)

    def open(self, folder: Path) -> None:
        """Make the folder: the first entries come."""
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, entries: Sequence[NamedEntry], save: Callable[[Any, str], None]) -> None:
        """Write entries; save takes each tensor that waits to be saved, and the name of its file."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the file, as far as it was written."""

    def moved(self, folder: Path) -> None:
        """After the end: the folder has this name now."""

    def end(self, frames: Mapping[int, list[str]]) -> int:
        """Write what is written at the end, given the stacks by number. How many bytes the files have."""
        raise NotImplementedError


class Writer:
    """Writes the entries of one step into its folder, which is made when the first one comes.

    Where that fails, as on a full disk, the failure is logged once, what was written before stays readable, and all
    that follows is dropped; full: this was done to leave some of the disk free. outcome is what is on the
    disk. The first of the folders that holds no dump is taken, and written is called then.
    """

    def __init__(
        self, folders: Sequence[Path], files: StepFiles, hooks: CallHooks, written: Callable[[], None]
    ) -> None:
        self._folders = folders
        self.folder = folders[0]
        self._written = written
        self._hooks = hooks
        self._files = files
        self._queue: deque[tuple[NamedEntry, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._failed = False
        self.full = False
        self.outcome = Outcome()
        self._ending = False
        self._wake = threading.Event()
        self._room = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def put(self, entry: NamedEntry, size: int = 0) -> bool:
        """Hand over an entry that holds size bytes of tensors; waits while the queue is full. False where it is
        dropped."""
        if self._failed:
            return False
        self._queue.append((entry, size))
        if size:
            with self._lock:
                self._bytes += size
        while len(self._queue) > _QUEUE_ENTRIES or self._bytes > _QUEUE_BYTES:
            self._room.clear()
            self._wake.set()
            # Nobody would ever make room.
            if self._failed or not self._thread.is_alive():
                return False
            self._room.wait(_LOOK_SECONDS)
        return True

    def end(self) -> None:
        """Write what is left, with what is written at the end, and wait for it."""
        self._ending = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:
            exists = isinstance(error, FileExistsError)
            reason = "there is a dump already" if exists else f"{type(error).__name__}: {error}"
            self._give_up(f"cannot be written ({reason})")

    def _give_up(self, why: str) -> None:
        self._failed = True
        lost = self._queue[0][0].name if self._queue else "the end of the step"
        _log.error(
            "pytest-probe: %s %s; calls from %s on are not recorded, the program continues", self.folder, why, lost
        )
        self._queue.clear()
        self._room.set()

    def _write(self) -> None:
        while not (self._queue or self._ending):
            self._rest()
        if not self._queue:
            return
        try:
            self._files.check_room(self.folder)
        except DiskFills as error:
            self._fill(error)
            return
        self._open()
        try:
            while not self._ending:
                # A device is waited for once, when the step ends, unless too much has gathered before.
                much = len(self._queue) > _QUEUE_ENTRIES // 2 or self._bytes > _QUEUE_BYTES // 2
                if much or not self._hooks.snapshots.waits():
                    self._drain()
                self._rest()
            self._drain()
        except DiskFills as error:
            self._fill(error)
        finally:
            self._files.close()
        size = self._files.end(self._hooks.stacks.lines())
        self.outcome = replace(self.outcome, size=self.outcome.size + size)

    def _open(self) -> None:
        """Raises FileExistsError where each of the folders holds a dump."""
        for folder in self._folders:
            self.folder = folder
            try:
                self._files.open(folder)
            except FileExistsError as error:
                taken = error
            else:
                self._written()
                return
        raise taken

    def rename(self, folder: Path) -> None:
        """After the end: the folder gets another name, unless another process has a folder of that name."""
        if folder != self.folder and self.outcome.steps:
            with suppress(OSError):
                self.folder.rename(folder)
                self.folder = folder
                self._files.moved(folder)

    def _fill(self, error: DiskFills) -> None:
        self.full = True
        self._give_up(f"is not written on: {error}")

    def _rest(self) -> None:
        self._wake.wait(_LOOK_SECONDS)
        self._wake.clear()

    def _drain(self) -> None:
        """Write the entries that are there."""
        while self._queue:
            self._write_some(min(len(self._queue), _ENTRIES_A_WRITE))

    def _write_some(self, count: int) -> None:
        """Write the first entries; they leave the queue when they are on the disk."""
        self._files.check_room(self.folder)
        # An entry is queued after its statistics were put off, so all that these entries need is there.
        self._hooks.snapshots.settle()
        # Looked at, not taken: an entry that cannot be written is named in the message.
        entries, sizes = zip(*[self._queue[index] for index in range(count)], strict=True)
        self._files.add(entries, self._save)
        for _ in range(count):
            self._queue.popleft()
        with self._lock:
            self._bytes -= sum(sizes)
        calls = [type(entry.body) for entry in entries].count(ForwardEntry)
        self.outcome = self.outcome.plus(Outcome(calls, count, steps=not self.outcome.steps))
        self._room.set()

    def _save(self, data: Any, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        self._hooks.snapshots.save(data, path)
        self.outcome = replace(self.outcome, size=self.outcome.size + path.stat().st_size)
