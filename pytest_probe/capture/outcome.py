"""What a capture has written, in numbers and in words."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Outcome(Struct, frozen=True):
    """calls and bytes that were written, of so many steps; seconds that those took, as recorded. entries counts
    backwards as well."""

    calls: int = 0
    entries: int = 0
    size: int = 0
    steps: int = 0
    seconds: float = 0.0

    def plus(self, other: Outcome) -> Outcome:
        """Of another step."""
        together = self.beside(other)
        return replace(together, steps=self.steps + other.steps, seconds=self.seconds + other.seconds)

    def beside(self, other: Outcome) -> Outcome:
        """Of another process, whose steps are the same."""
        steps, seconds = max(self.steps, other.steps), max(self.seconds, other.seconds)
        return Outcome(self.calls + other.calls, self.entries + other.entries, self.size + other.size, steps, seconds)

    def numbers(self) -> tuple[int, int, int, int, float]:
        return self.calls, self.entries, self.size, self.steps, self.seconds

    def recorded(self) -> str:
        """ "566 calls of 1 step"."""
        what = f"{self.calls:,} call{'s' * (self.calls != 1)}"
        if self.entries and not self.calls:  # backwards alone were asked for
            what = f"{self.entries:,} backward call{'s' * (self.entries != 1)}"
        return f"{what} of {self.steps} step{'s' * (self.steps != 1)}"

    def cost(self) -> str:
        """ "1.2 GB, 3.1 s a step"; each is of one step."""
        steps = max(1, self.steps)
        seconds = self.seconds / steps
        shown = f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"
        return f"{in_bytes(self.size / steps)}, {shown} s a step"


def in_bytes(count: float) -> str:
    """ "1.2 GB", "340 kB", "12 bytes"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count:.0f} bytes"
