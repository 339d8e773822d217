"""A device whose memory is counted, also where several processes share it."""

from __future__ import annotations

import fcntl
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.devices import Emulated


class Memory:
    """A device's memory of so many bytes, which processes share through a file. Each keeps what is freed for requests
    of the same size, as a framework's allocator does, until its cache is emptied."""

    def __init__(self, path: Path, size: int, error: Callable[[str], BaseException]) -> None:
        self.path, self.size, self.error = path, size, error
        self._cached: Counter[int] = Counter()
        path.touch()

    def take(self, count: int, owner: Any) -> None:
        """Until nobody has the owner any more."""
        if self._cached[count]:
            self._cached[count] -= 1
        elif not self._reserve(count):
            self.note("ran out")
            raise self.error(f"out of memory: tried to take {count} bytes")
        weakref.finalize(owner, self._free, count)

    def _free(self, count: int) -> None:
        self._cached[count] += 1

    def empty_cache(self) -> None:
        self._reserve(-sum(count * often for count, often in self._cached.items()))
        self._cached.clear()

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        with self._reserved() as reserved:
            return self.size - sum(reserved.values()), self.size

    def events(self) -> list[str]:
        """What happened, in all processes."""
        return [line for line in self.path.read_text().splitlines() if not line.startswith("bytes ")]

    def note(self, event: str) -> None:
        """For `events`."""
        with self.path.open("a") as file:
            file.write(f"{event}\n")

    def _reserve(self, count: int) -> bool:
        with self._reserved() as reserved:
            fits = sum(reserved.values()) + count <= self.size
            if fits:
                self.note(f"bytes {os.getpid()} {count}")
        return fits

    @contextmanager
    def _reserved(self) -> Iterator[Counter[str]]:
        """Bytes by process, of those that live, while no other process can change it."""
        with self.path.with_suffix(".counting").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found: Counter[str] = Counter()
            for line in self.path.read_text().splitlines():
                if line.startswith("bytes "):
                    _, process, count = line.split()
                    found[process] += int(count) if Path(f"/proc/{process}").exists() else 0
            yield found


class Counted(Emulated):
    """A device whose tensors take some of a memory."""

    def __init__(self, name: str, memory: Memory) -> None:
        super().__init__(name)
        self.memory = memory

    def put(self, tensor: Any) -> Any:
        found = tensor.clone()
        self.memory.take(found.numel() * found.element_size(), found)
        return found
