"""One capture in one process: its steps, its folders, which calls it records, and what becomes of errors.

It knows no framework.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_probe.capture import folder, writer
from pytest_probe.capture.apex_files import ApexFiles
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.dump_files import DumpFiles
from pytest_probe.capture.online.sending import Connection
from pytest_probe.capture.ranks import ANY_NUMBER
from pytest_probe.capture.scope import Scope
from pytest_probe.capture.snapshot import NamedEntry
from pytest_probe.capture.writer import Outcome, StepFiles, Writer, in_bytes
from pytest_probe.errors import OverflowFound, ProbeError

if TYPE_CHECKING:
    from pytest_probe.capture.hooks import CallHooks

log = logging.getLogger("pytest_probe")
# The key of the warning that says which parts of a program are compiled, and so not seen.
COMPILED = "compiled"
# How the reason begins for which most captures are empty.
NO_CALL = "the program made no call"
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """Takes entries from the hooks, gives them to the writer of the current step, and never raises into the program."""

    def __init__(self, config: CaptureConfig, hooks: CallHooks) -> None:
        self.config = config
        self._online = None if config.online is None else Connection(config, hooks)
        self.scope = Scope(config, self._online)
        self.step = 0
        self._hooks = hooks
        self._writer: Writer | None = None
        self._asked = False
        self._running = False
        self._warned: dict[str, str] = {}
        self._taken = False
        self._shared = False
        self._tell_written: Callable[[], None] = lambda: None
        self._opened = False
        self._full = False
        # When the step that is open began, and the first of all: with its first call, since imports are no step's.
        self._began = self._began_first = 0.0
        self.announced = False
        self.outcome = Outcome()
        self._overflows = self._unseen = self._regions = 0
        # Calls by where the function is written, and its name.
        self._lost: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        # At the end of the process what is open is written; a forked child has nothing to write.
        if not _recorders and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_leave_all)
        _recorders.add(self)
        atexit.register(self.finish)

    def _rank(self) -> int | None:
        return self._hooks.rank() if self.config.rank is None else self.config.rank

    def _ranks(self) -> int:
        # How many there are nothing says then, and each takes its own folder alone.
        return self._hooks.ranks() if self.config.rank is None else ANY_NUMBER

    def take_folder(self) -> None:
        """Before the first step: take the folder for this run. Raises FolderTaken, or SettingsError."""
        rank = self._rank()
        if self._online is not None:
            if self.scope.wants_rank(rank):
                self._online.open(rank, self._ranks())
                self._taken = True
        elif not self._taken and self.scope.wants_rank(rank):
            folder.check_usable("dump_path", self.config.dump_path)
            folder.take(self.config.dump_path, rank, self._ranks(), overwrite=self.config.overwrite)
            self._taken = True

    def share_folder(self, written: Callable[[], None]) -> None:
        """The process that started this one has taken the folder for both, and speaks for both where no rank does.
        written is called when something is there."""
        self._taken = self._shared = True
        self._tell_written = written

    def start(self) -> None:
        """Record from here on, where the step and the rank are wanted."""
        self._asked = True
        rank = self._rank()
        # PaddleAPEX's names have ranks only: a process without one would write into the folder of the process that
        # started it.
        nowhere = self._shared and self.config.layout == "paddleapex" and rank is None
        wanted = self.scope.wants_step(self.step) and self.scope.wants_rank(rank)
        if self._running or not wanted or self._full or nowhere:
            return
        # Two of one framework would record each other's steps.
        if any(each._running and each._hooks.framework == self._hooks.framework for each in _recorders):
            self.tell("another", "pytest-probe: another capture runs in this process, so this one records nothing")
            return
        if self._writer is None:
            self._writer = Writer(self._folders(), self._files(), self._hooks, self._tell_written)
            self._opened = True
            self._began = time.perf_counter() if self._began_first else 0.0
        self._hooks.install(self)
        self._running = True

    def forward_ends(self) -> None:
        if self._running:
            self._hooks.remove_forward()

    def stop(self) -> None:
        """Record no longer; what was recorded stays open until the step ends."""
        # Also where it was done before: the hooks cannot leave wholly from inside a call, for example after an
        # overflow.
        self._asked = self._running = False
        self._hooks.remove()

    def end_step(self) -> None:
        """Write the step, wait for the disk, and begin the next."""
        asked, before = self._asked, self.outcome.steps
        self.close()
        first = not before and bool(self.outcome.steps) and not self._full
        if first and self._online is None and self.scope.wants_later_step(self.step) and self._speaks():
            free = in_bytes(writer.free(self._folder()))
            say(f"pytest-probe: {self.outcome.cost()}; {free} free{self.scope.steps_left(self.step)}")
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
            # It may have learned its rank while it recorded.
            if self._rank() is not None:
                writer.rename(self._folder())
            seconds = time.perf_counter() - self._began if writer.outcome.steps else 0.0
            self.outcome = self.outcome.plus(
                replace(writer.outcome, seconds=seconds, unseen=self._unseen, lost=dict(self._lost))
            )
            self._unseen = 0
            self._lost.clear()
            self._full = writer.full

    def finish(self) -> None:
        """Close, and say once what was recorded."""
        self.close()
        if self._online is not None:
            self._online.close()
        if not self.announced:
            self.announced = True
            self.announce()

    def announce(self) -> None:
        """Say what was recorded, or why nothing was."""
        if missing := self.missing():
            log.warning("pytest-probe: nothing was recorded: %s", missing)
        elif self.outcome.entries and self._speaks():
            done = f"{self.outcome.recorded()}, {self.outcome.cost()}"
            if self._online is not None:
                say(f"pytest-probe: sent {done}: {self.config.online}{self._online.left_out()}")
            else:
                say(f"pytest-probe: recorded {done}: {self.config.dump_path}")
        if (missed := self.outcome.missed()) and self._speaks():
            say(f"pytest-probe: {missed}")

    def progress(self) -> str:
        """What is there now: "1,204 calls of 3 steps, 12 MB; 2 steps left; 9 s"; "" before the first."""
        writer = self._writer
        now = self.outcome if writer is None else self.outcome.plus(replace(writer.outcome, steps=1))
        if not now.entries:
            return ""
        size = f", {in_bytes(now.size)}" if now.size else ""
        seconds = time.perf_counter() - self._began_first
        return f"{now.recorded()}{size}{self.scope.steps_left(self.step)}; {seconds:,.0f} s"

    @property
    def complete(self) -> bool:
        """Has the last step that is wanted ended?"""
        return self.step > 0 and not self.scope.wants_later_step(self.step - 1)

    def missing(self) -> str:
        """Why nothing was recorded where something should have been; "" where it was, or nothing was asked for."""
        # Nothing can be checked of what a compiled function calls.
        if self._shared or self.outcome.entries > self._regions or not self._taken or "another" in self._warned:
            return ""
        if not self._opened:
            wanted = ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in self.config.steps)
            return f"the program ended in step {self.step}, and it was asked for step {wanted}"
        if self._full:
            return "the disk has no room for it"
        if self.config.task == "overflow_check":
            return ""
        unseen = self._warned.get(COMPILED, "").removeprefix("pytest-probe: ")
        return unseen or f"{NO_CALL} that is asked for, or none that could be written"

    def _speaks(self) -> bool:
        """Does this process speak for all? One of several ranks does."""
        rank = self._rank()
        if rank is None:
            return not self._shared
        return rank == min((each[0] for each in self.config.ranks), default=0)

    def leave(self) -> None:
        """In a forked child: the files and the thread are the parent's."""
        self._running = False
        self.announced = True
        self._writer = self._online = None
        self._hooks.remove()

    def put(self, entry: NamedEntry, size: int = 0) -> None:
        writer = self._writer
        if not self._began:
            self._began = time.perf_counter()
            self._began_first = self._began_first or self._began
        self._regions += entry.name.startswith(self._hooks.regions)
        if writer is not None and not writer.put(entry, size) and writer.full and self._running:
            self.stop()

    def failed(self, name: str, error: Exception) -> None:
        """A call could not be recorded: the dump says so at its place, and the program gets one warning for each
        reason."""
        # torch's messages may go on with a trace of its own code.
        first, _, _ = str(error).partition("\n")
        reason = f"{type(error).__name__}: {first}"
        self.put(NamedEntry(name, {"probe": {"failed": reason}}))
        words = "pytest-probe: %s was not recorded (%s); the dump marks other calls that fail in the same way"
        self.tell(reason, words, name, reason)

    def tell(self, about: str, message: str, *args: Any) -> None:
        """A warning, once for each thing it is about."""
        if about not in self._warned:
            self._warned[about] = message % args if args else message
            log.warning(message, *args)

    def missed_compiled(self) -> None:
        """A compiled function was called, and no call in it is seen."""
        with self._lock:
            self._unseen += 1

    def lost(self, origin: str, name: str) -> None:
        """A call was not recorded: of a function that stands in the place of one of the framework's, which one nobody
        can tell."""
        with self._lock:
            self._lost[origin, name] += 1

    def overflowed(self, name: str) -> None:
        """Raises OverflowFound where this is the last overflow that was asked for."""
        with self._lock:
            self._overflows += 1
            last = self._overflows == self.config.overflows
        if last:
            writer = self._writer
            # Before it is raised: the program may end at once.
            self.close()
            folder = self._folder() if writer is None else writer.folder
            apex = self.config.layout == "paddleapex"
            file = folder / (f"forward_rank{self._rank() or 0}_all.json" if apex else "dump.json")
            calls = "a call" if self._overflows == 1 else f"{self._overflows} calls"
            found = f"{calls} gave NaN or inf, the last one {name}; see {file}"
            raise OverflowFound("\n  ".join((found, *_overflow_lines(file, name, self.step))))

    def _folder(self) -> Path:
        if self._online is not None:
            return Path(str(self.config.online))
        rank, folder = self._rank(), Path(os.path.abspath(self.config.dump_path))
        if self.config.layout == "paddleapex":
            return folder / f"rank{rank or 0}_step{self.step}"
        return folder / f"step{self.step}" / (f"proc{os.getpid()}" if rank is None else f"rank{rank}")

    def _folders(self) -> list[Path]:
        """The folder of a step, and others for where another process of the run has taken that."""
        first = self._folder()
        if not self._shared or self.config.layout == "paddleapex":
            return [first]
        # Processes of several machines, or of several containers, may have one number.
        others = (f"proc{os.getpid()}", f"proc{os.getpid()}{time.time_ns() % 10**9:09}")
        return [first, *(each for each in map(first.with_name, others) if each != first)]

    def _files(self) -> StepFiles:
        if self._online is not None:
            return self._online.files(self._header(), self.step)
        if self.config.layout == "paddleapex":
            return ApexFiles(self.config.apex, self._rank() or 0)
        data = self.config.task in ("tensor", "overflow_check")
        return DumpFiles(self._header(), data=data, suffix=self._hooks.suffix)

    def _header(self) -> dict[str, Any]:
        return {
            "task": self.config.task,
            "level": self.config.level,
            "framework": self._hooks.framework,
            "dump_data_dir": None,
            "probe": dict(self._hooks.describe()),
        }


def _overflow_lines(file: Path, name: str, step: int) -> Iterator[str]:
    """Where a call gave NaN or inf, as the dump has it, and how to ask whether the device is to blame."""
    from pytest_probe.model.dump import place_lines
    from pytest_probe.records import library_frame, module_path, read_dump, user_frame

    yield f"in step {step}"
    with contextlib.suppress(ProbeError, OSError):
        dump = read_dump(file)
        frames, modules = dump.stack(name), dump.modules(name)
        yield from place_lines(user_frame(frames), library_frame(frames), module_path(modules[0]) if modules else "")
    yield f"is the device to blame? pytest {shlex.quote(f'--probe-dump={file.parent}')} --probe-standard=finite"


def say(message: str) -> None:
    """A line for who runs the program: in its log where that shows such lines, else on standard error."""
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        log.info(message)
    else:
        print(message, file=sys.stderr)


def _leave_all() -> None:
    for recorder in list(_recorders):
        recorder.leave()
