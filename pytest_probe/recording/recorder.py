"""One capture in one process: its steps, its folders, and what becomes of errors. Knows no framework."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pytest_probe.core.dump import TENSOR_FOLDER
from pytest_probe.errors import OverflowFound
from pytest_probe.recording.config import CaptureConfig
from pytest_probe.recording.scope import Scope
from pytest_probe.recording.snapshot import NamedEntry
from pytest_probe.recording.writer import EntrySource, Writer

log = logging.getLogger("pytest_probe")


class Hooks(EntrySource, Protocol):
    """A framework's part: it sees the calls, and hands their entries to the recorder."""

    def follow(self, model: Any) -> None:
        """From the next `install` on record this model's modules; None: of that before. Raises SettingsError."""

    def install(self, recorder: Recorder) -> None:
        """Begin to see calls, on this thread and on those that it starts."""

    def remove_forward(self) -> None:
        """No longer see calls; the gradients of those that were seen still come."""

    def remove(self) -> None:
        """Leave no hook."""

    def end_step(self, recorder: Recorder) -> None:
        """Hand over what is not complete, and count calls anew."""

    def rank(self) -> int | None:
        """This process among those that train together, None where it is alone."""

    def describe(self) -> Mapping[str, str]:
        """Versions and flags that change numerics, for the head of the dump."""


class Recorder:
    """Takes entries from the hooks, gives them to the writer of the current step, and never raises into the program."""

    def __init__(self, config: CaptureConfig, hooks: Hooks) -> None:
        self.config = config
        self.scope = Scope(config)
        self.step = 0
        self._hooks = hooks
        self._writer: Writer | None = None
        self._asked = False
        self._running = False
        self._told: set[str] = set()
        self._overflows = 0
        self._lock = threading.Lock()
        _watch_process(self)

    def start(self) -> None:
        """Record from here on, where the step and the rank are wanted."""
        self._asked = True
        wanted = self.scope.wants_step(self.step) and self.scope.wants_rank(self._hooks.rank())
        if self._running or not wanted:
            return
        # Two modes would record each other's steps.
        if any(each._running for each in _recorders):
            self.tell("another", "pytest-probe: another capture is running in this process; this one records nothing")
            return
        if self._writer is None:
            self._writer = Writer(self._folder(), self._header(), self._hooks)
        self._hooks.install(self)
        self._running = True

    def forward_ends(self) -> None:
        if self._running:
            self._hooks.remove_forward()

    def stop(self) -> None:
        """Record no longer; what was recorded stays open until the step ends."""
        # Also where it was done before: from inside a call, as of an overflow, the hooks cannot leave wholly.
        self._asked = self._running = False
        self._hooks.remove()

    def end_step(self) -> None:
        """Write the step, wait for the disk, and begin the next."""
        asked = self._asked
        self.close()
        self.step += 1
        self.scope.again()
        if asked:
            self.start()

    def close(self) -> None:
        """Stop, and write the step that is open. Nothing is lost when this is the last that happens."""
        self.stop()
        if self._writer is not None:
            self._hooks.end_step(self)
            writer, self._writer = self._writer, None
            writer.end()

    def leave(self) -> None:
        """In a forked child: the files and the thread are the parent's."""
        self._running = False
        self._writer = None
        self._hooks.remove()

    def put(self, entry: NamedEntry, size: int = 0) -> None:
        writer = self._writer
        if writer is not None:
            writer.put(entry, size)

    def failed(self, name: str, error: Exception) -> None:
        """A call could not be recorded: the dump says so at its place, and the program is told once for each reason."""
        # torch's messages may go on with a trace of its own code.
        first, _, _ = str(error).partition("\n")
        reason = f"{type(error).__name__}: {first}"
        self.put(NamedEntry(name, {"probe": {"failed": reason}}))
        self.tell(
            reason, "pytest-probe: %s was not recorded (%s); others that fail so are marked in the dump", name, reason
        )

    def tell(self, about: str, message: str, *args: Any) -> None:
        """A warning, once for each thing it is about."""
        if about not in self._told:
            self._told.add(about)
            log.warning(message, *args)

    def overflowed(self, name: str) -> None:
        """Raises OverflowFound where this is the last overflow that was asked for."""
        with self._lock:
            self._overflows += 1
            last = self._overflows == self.config.overflows
        if last:
            count, file = self._overflows, self._folder() / "dump.json"
            # Before it is raised: the program may end at once.
            self.close()
            raise OverflowFound(count, name, file)

    def _folder(self) -> Path:
        rank = self._hooks.rank()
        process = f"proc{os.getpid()}" if rank is None else f"rank{rank}"
        return Path(os.path.abspath(self.config.dump_path)) / f"step{self.step}" / process

    def _header(self) -> dict[str, Any]:
        data = str(self._folder() / TENSOR_FOLDER) if self.config.task in ("tensor", "overflow_check") else None
        return {
            "task": self.config.task,
            "level": self.config.level,
            "framework": "pytorch",
            "dump_data_dir": data,
            "probe": dict(self._hooks.describe()),
        }


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _leave_all() -> None:
    for recorder in list(_recorders):
        recorder.leave()


def _watch_process(recorder: Recorder) -> None:
    """At the end of the process what is open is written; a forked child has nothing to write."""
    if not _recorders and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_all)
    _recorders.add(recorder)
    atexit.register(recorder.close)
