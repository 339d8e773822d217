"""A folder that both ends see: a file a message, written under another name and renamed.

Of a sender `000000017-<run>-<rank>-<step>-<call>-forward.safetensors`, and at its end `...-<run>-goodbye.safetensors`.
Who takes a file renames it: see features/online/folder_source.py. Each end has a file `<kind>-<random number>.alive`
that it touches while it lives. The clock is the folder's, since those of two machines differ; and containers on one
machine have the same numbers of processes.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from pytest_probe.capture.online.message import Entry, Goodbye, Message, encoded
from pytest_probe.system.files import replacing

_log = logging.getLogger("pytest_probe")
SUFFIX = ".safetensors"
ALIVE = ".alive"
CHECKER, TRAINER = "checker", "trainer"
BEAT_SECONDS = 5.0
# An end that did not touch its file for so long is gone.
GONE_SECONDS = 60.0
_LOOK_SECONDS = 0.02


def name_of(number: int, message: Message) -> str:
    """The name of a message's file."""
    run = message.sender.run
    if isinstance(message, Goodbye):
        return f"{number:09}-{run}-goodbye{SUFFIX}"
    return f"{number:09}-{run}-{message.sender.rank}-{message.step}-{message.call}-{message.direction}{SUFFIX}"


class Beat:
    """Touches a file while this process lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._end = threading.Event()
        threading.Thread(target=self._run, name="pytest-probe alive", daemon=True).start()

    def _run(self) -> None:
        while not self._end.wait(BEAT_SECONDS):
            with suppress(OSError):
                self.path.touch()

    def close(self) -> None:
        self._end.set()
        with suppress(OSError):
            self.path.unlink()


def lives(path: Path, now_ns: int) -> bool:
    """Does the process live that touches this file? now_ns: when the reader's own was touched last."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and abs(now_ns - found.st_mtime_ns) < GONE_SECONDS * 1e9


class SharedFolder:
    """The sender's end. limit: bytes of messages that wait to be judged. waits: put waits for room.

    Raises OSError where the folder cannot be written.
    """

    def __init__(self, folder: Path, run: str, *, limit: int, waits: bool) -> None:
        self._folder = folder
        self._limit = limit
        self._waits = waits
        self._number = 0
        self._waiting = 0
        self._lost = False
        self._full = False
        # Of the message that found no room last: bytes, and when room was looked for.
        self._wanted, self._looked = 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self._beat = Beat(folder / f"{TRAINER}-{run}{ALIVE}")

    @property
    def full(self) -> bool:
        """Asked for each call, and looked at again after a while: where nothing is put nobody else looks."""
        if self._full and time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._look()
        return self._full

    def _look(self) -> None:
        """Count the bytes of messages that wait to be judged. Raises OSError."""
        waiting = 0
        with os.scandir(self._folder) as found:
            for entry in found:
                if entry.name.endswith(SUFFIX):
                    with suppress(OSError):  # it was taken
                        waiting += entry.stat().st_size
        self._waiting = waiting
        self._full = bool(self._waiting) and self._waiting + self._wanted > self._limit

    def put(self, message: Message, tensors: Mapping[str, np.ndarray]) -> bool:
        if self._lost:
            return False
        try:
            parts = encoded(message, tensors)
            size = sum(memoryview(part).nbytes for part in parts)
            if isinstance(message, Entry) and not self._has_room(size):
                return False
            path = self._folder / name_of(self._number, message)
            self._number += 1
            with replacing(path) as temporary, temporary.open("xb") as file:
                file.writelines(parts)
            self._waiting += size
        except OSError as error:
            self._give_up(f"{self._folder} cannot be written ({error})")
            return False
        return True

    def _has_room(self, size: int) -> bool:
        """Waits for it where that is the policy, as long as a checking host takes messages."""
        since = time.monotonic()
        self._wanted = size
        while self._waiting and self._waiting + size > self._limit:
            before = self._waiting
            self._look()
            if self._waiting != before:
                since = time.monotonic()
            if not self._full:
                break
            if not self._waits:
                return False
            if time.monotonic() - since > GONE_SECONDS:
                self._give_up(f"{self._folder} is full, and for {GONE_SECONDS:.0f} s no checking host took a message")
                return False
            time.sleep(_LOOK_SECONDS)
        self._full = False
        return True

    def _give_up(self, why: str) -> None:
        self._lost, self._full = True, False
        _log.error("pytest-probe: %s; the program continues, and no more calls are checked", why)

    def close(self, goodbye: Goodbye) -> int:
        self.put(goodbye, {})
        self._beat.close()
        return 0
