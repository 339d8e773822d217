"""Calls of a search that end their process: what is told before each, and what is known of those that did."""

from __future__ import annotations

import msgspec

from pytest_probe.model.dump import Direction

# How the notes of a search begin, which a run's summary shows.
FUZZED = "fuzz: "


class AnnouncedCall(msgspec.Struct, frozen=True):
    """A call that is about to run: key tells its arguments, text shows them."""

    key: str
    text: str
    direction: Direction = "forward"

    def __str__(self) -> str:
        return self.text if self.direction == "forward" else f"{self.text}, {self.direction}"


class FatalCall(msgspec.Struct, frozen=True):
    """A call that ended its process. id is the portable id of its search, reason how the process died, kind that of the
    verdict on such a death."""

    id: str
    call: AnnouncedCall
    reason: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.call}: {self.reason}"
