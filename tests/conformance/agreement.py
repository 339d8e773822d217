"""How often two tools say the same of the same rows."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field


class Agreement(Struct):
    """Rows that are alike, unlike for a slip that is known, undecided by one of both, and unlike otherwise."""

    alike: int = 0
    slips: Counter[str] = field(default_factory=Counter)
    undecided: int = 0
    unlike: list[str] = field(default_factory=list)

    def add(self, row: str, differs: str, slip: str = "") -> None:
        """differs: in what, "" where in nothing; slip: why it may."""
        if not differs:
            self.alike += 1
        elif slip:
            self.slips[slip] += 1
        else:
            self.unlike.append(f"{row}: {differs}")

    @property
    def rows(self) -> int:
        return self.alike + self.slips.total() + len(self.unlike)

    def __str__(self) -> str:
        slips = "".join(f"\n    {count:,} differ: {why}" for why, count in self.slips.items())
        return f"{self.alike:,} alike, {self.undecided:,} that the tool skipped{slips}"
