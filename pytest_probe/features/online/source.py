"""What was received, and what is known of those who send."""

from __future__ import annotations

import time
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
    """Who sends, and who has ended. left_out counts the calls that the pace of the programs left out."""

    def __init__(self) -> None:
        self._ranks: dict[str, Sender] = {}
        self._ended: dict[str, Goodbye | None] = {}
        self._last_end = 0.0
        self.steps: dict[int, set[int]] = {}

    def came(self, entry: Entry) -> None:
        self._ranks[entry.sender.run] = entry.sender
        self.steps.setdefault(entry.sender.rank, set()).add(entry.step)

    def ended(self, goodbye: Goodbye) -> None:
        self._ranks[goodbye.sender.run] = goodbye.sender
        self._ended[goodbye.sender.run] = goodbye
        self._last_end = time.monotonic()

    def died(self, run: str) -> bool:
        """It went without a word. Is that news?"""
        news = run not in self._ended
        if news:
            self._ended[run] = None
            self._last_end = time.monotonic()
        return news

    def has_ended(self, run: str) -> bool:
        return run in self._ended

    @property
    def all_ended(self) -> bool:
        """Have all that train together come, and ended? Who has not come for a while after that comes no more."""
        ranks = {sender.rank for sender in self._ranks.values()}
        wanted = max((each.ranks for each in self._ranks.values() if each.ranks < _MANY), default=1)
        if not self._ranks or not self._ended.keys() >= self._ranks.keys():
            return False
        return len(ranks) >= wanted or time.monotonic() - self._last_end > GONE_SECONDS

    @property
    def left_out(self) -> int:
        return sum(each.left_out for each in self._ended.values() if each is not None)

    def dead(self) -> list[int]:
        """The ranks that went without a word."""
        gone = (run for run, goodbye in self._ended.items() if goodbye is None)
        return sorted({self._ranks[run].rank for run in gone if run in self._ranks})
