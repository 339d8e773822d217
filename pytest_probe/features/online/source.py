"""What was received, and what is known of those who send."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from pytest_probe.capture.online.message import Entry, Goodbye, Sender
from pytest_probe.capture.online.shared_folder import GONE_SECONDS

# As many ranks as nothing says: see capture/ranks.
_MANY = 1 << 20


class Received(Struct, frozen=True):
    """An entry that came, and the file that has its tensors; forward is the file of the call's forward entry, with
    which a backward is judged: None where it never came."""

    entry: Entry
    path: Path
    forward: Path | None = None


class Senders:
    """Who sends, and who has ended. ranks are the senders by their runs, announced how many messages were seen of each;
    goodbyes what those said that have ended."""

    def __init__(self) -> None:
        self.ranks: dict[str, Sender] = {}
        self.announced: Counter[str] = Counter()
        self.goodbyes: dict[str, Goodbye] = {}
        self.steps: dict[int, set[int]] = {}
        self._gone: set[str] = set()
        self._last_end = 0.0

    def came(self, entry: Entry, number: int = 0) -> None:
        self.ranks[entry.sender.run] = entry.sender
        self.announced[entry.sender.run] = max(self.announced[entry.sender.run], number + 1)
        self.steps.setdefault(entry.sender.rank, set()).add(entry.step)

    def ended(self, goodbye: Goodbye) -> None:
        self.ranks[goodbye.sender.run] = goodbye.sender
        self.goodbyes[goodbye.sender.run] = goodbye
        self._last_end = time.monotonic()

    def alive(self, run: str, lives: bool) -> None:
        """Does a program live? One that was gone may come back."""
        if lives:
            self._gone.discard(run)
        elif not self.has_ended(run):
            self._gone.add(run)
            self._last_end = time.monotonic()

    def has_ended(self, run: str) -> bool:
        return run in self.goodbyes or run in self._gone

    @property
    def _missing(self) -> int:
        """How many of those that train together have not come."""
        wanted = max((each.ranks for each in self.ranks.values() if each.ranks < _MANY), default=1)
        return max(wanted - len({sender.rank for sender in self.ranks.values()}), 0)

    @property
    def all_ended(self) -> bool:
        """Have all that train together come, and ended? Who has not come for a while after that comes no more."""
        if not self.ranks or not all(map(self.has_ended, self.ranks)):
            return False
        return not self._missing or time.monotonic() - self._last_end > GONE_SECONDS

    def lost(self, done: Callable[[str], set[int]]) -> list[str]:
        """What fails the run. done gives the messages of a run that have their results; -9: all those before 9."""
        found = [f"ranks that never came: {self._missing:,}"] if self._missing else []
        for run, sender in self.ranks.items():
            numbers, goodbye = done(run), self.goodbyes.get(run)
            first = max(-min(numbers, default=0), 0)
            count = first + sum(number >= first for number in numbers)
            sent = max(self.announced[run], count) if goodbye is None else goodbye.sent
            if goodbye is None or count < sent:
                how = "went without a goodbye" if goodbye is None else "has ended"
                found.append(f"rank {sender.rank} {how}: {count:,} of the {sent:,} entries that it sent were judged")
        return sorted(found)
