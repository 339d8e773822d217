"""The thread that writes one step: it takes entries from a bounded queue, so that training waits for nothing else."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from msgspec import UNSET

from pytest_probe.core.dump import TENSOR_FOLDER
from pytest_probe.recording.disk import DiskFills, check_room
from pytest_probe.recording.encoding import encoded, save_data
from pytest_probe.recording.growing_json import GrowingFile, write_json
from pytest_probe.recording.outcome import Outcome
from pytest_probe.recording.snapshot import ForwardEntry, NamedEntry, Parent, backward_of, forward_of

log = logging.getLogger("pytest_probe")

PAUSE = 0.25  # seconds between looks at the queue: what a killed process loses
ROOM = 4096  # entries
AT_ONCE = 256  # entries in one write
ROOM_BYTES = 256 << 20  # of tensors that wait to be saved


class EntrySource(Protocol):
    """The framework's part in writing."""

    def waits(self) -> bool:
        """Would settling wait for a device?"""

    def settle(self) -> None:
        """Fill in the statistics that were put off so far."""

    def save(self, data: Any, path: Path) -> None:
        """Write one tensor. Raises OSError."""

    def frames(self) -> Mapping[int, list[str]]:
        """The stacks by number, as stack.json shows frames, innermost first."""


class Writer:
    """Writes the entries of one step into its folder, which is made when the first one comes.

    Where that fails, as on a full disk, the failure is logged once, what was written before stays readable, and all
    that follows is dropped; full tells that this was to leave some of the disk free. outcome is what is on the disk.
    """

    def __init__(self, folder: Path, header: dict[str, Any], source: EntrySource) -> None:
        self.folder = folder
        self._source = source
        self._header = header
        self._queue: deque[tuple[NamedEntry, int]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._failed = False
        self.full = False
        self.outcome = Outcome()
        self._ending = False
        self._wake = threading.Event()
        self._room = threading.Event()
        self._stacks: dict[int, list[str]] = {}
        self._parents: dict[str, Parent] = {}
        self._thread = threading.Thread(target=self._run, name="pytest-probe writer", daemon=True)
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
        while len(self._queue) > ROOM or self._bytes > ROOM_BYTES:
            self._room.clear()
            self._wake.set()
            # Nobody would ever make room.
            if self._failed or not self._thread.is_alive():
                return False
            self._room.wait(PAUSE)
        return True

    def end(self) -> None:
        """Write what is left, with stack.json and construct.json, and wait for it."""
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
        log.error(
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
            check_room(self.folder)
        except DiskFills as error:
            self._fill(error)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        dump = GrowingFile(self.folder / "dump.json", self._header, "data")
        try:
            while not self._ending:
                # A device is waited for once, when the step ends, unless too much has gathered before.
                if not self._source.waits() or len(self._queue) > ROOM // 2:
                    self._drain(dump)
                self._rest()
            self._drain(dump)
        except DiskFills as error:
            self._fill(error)
        finally:
            dump.close()
        self._write_companions()
        files = (self.folder / name for name in ("dump.json", "stack.json", "construct.json"))
        self.outcome = replace(self.outcome, size=self.outcome.size + sum(file.stat().st_size for file in files))

    def _fill(self, error: DiskFills) -> None:
        self.full = True
        self._give_up(f"is not written on: {error}")

    def _rest(self) -> None:
        self._wake.wait(PAUSE)
        self._wake.clear()

    def _write_companions(self) -> None:
        frames = self._source.frames()
        shown = {str(index): [names, frames.get(index, [])] for index, names in self._stacks.items()}
        write_json(self.folder / "stack.json", shown)
        write_json(self.folder / "construct.json", whole(self._parents))

    def _drain(self, dump: GrowingFile) -> None:
        """Write the entries that are there."""
        while self._queue:
            self._write_some(dump, min(len(self._queue), AT_ONCE))

    def _write_some(self, dump: GrowingFile, count: int) -> None:
        """Write the first entries; they leave the queue when they are on the disk."""
        check_room(self.folder)
        # An entry is queued after its statistics were put off, so all that these entries need is there.
        self._source.settle()
        # Looked at, not taken: an entry that cannot be written is named in the message.
        entries = [self._queue[index] for index in range(count)]
        if self._header["dump_data_dir"] is not None:
            for entry, _ in entries:
                save_data(entry, self._save)
        dump.add([(entry.name, encoded(entry)) for entry, _ in entries])
        for entry, _ in entries:
            if entry.parent is not UNSET:
                self._parents[entry.name] = entry.parent
            if entry.where >= 0:
                self._stacks.setdefault(entry.where, []).append(entry.name)
            self._queue.popleft()
        with self._lock:
            self._bytes -= sum(size for _, size in entries)
        calls = sum(type(entry.body) is ForwardEntry for entry, _ in entries)
        self.outcome = self.outcome.plus(Outcome(calls, count, steps=not self.outcome.steps))
        self._room.set()

    def _save(self, data: Any, name: str) -> None:
        folder = self.folder / TENSOR_FOLDER
        folder.mkdir(exist_ok=True)
        self._source.save(data, folder / name)
        self.outcome = replace(self.outcome, size=self.outcome.size + (folder / name).stat().st_size)


def whole(parents: Mapping[str, Parent]) -> dict[str, Parent]:
    """Each entry's parent among the entries. A module may have none of its own, as one through which no gradients
    went: then what stands in it stands in that module's parent."""
    found: dict[str, Parent] = {}
    for name, parent in parents.items():
        while isinstance(parent, str) and parent not in parents:
            parent = backward_of(parents.get(forward_of(parent)))
        found[name] = parent
    return found
