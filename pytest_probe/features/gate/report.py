"""What a run says of the baseline that it was compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from pytest_probe.model.baseline import Change
from pytest_probe.model.result import Result
from pytest_probe.reports.terminal import count, wrap

# Of each kind, so many are listed.
LISTED = 10
# How the summary counts them, in its order, and whether it lists them: pytest lists what failed.
COUNTED: dict[Change, tuple[str, bool]] = {
    "worse": ("worse", False),
    "bits": ("with other bits", False),
    "same": ("as before", False),
    "known": ("known to fail", True),
    "better": ("better", True),
    "new": ("new", True),
    "changed": ("changed, not compared", True),
    "gone": ("no longer judged", True),
}
VANISHED = "vanished"


class GateTally(Struct):
    """The cases of a run by what they are beside the baseline; listed holds the first of each kind, with reasons."""

    changes: Counter[Change] = field(default_factory=Counter)
    listed: dict[Change, list[tuple[str, str]]] = field(default_factory=dict)
    same_bits: int = 0
    bits: int = 0

    def add(self, result: Result) -> None:
        compared = result.gate
        if compared is None:
            return
        self.changes[compared.change] += 1
        self.same_bits += compared.same_bits
        self.bits += compared.bits
        found = self.listed.setdefault(compared.change, [])
        if COUNTED[compared.change][1] and len(found) < LISTED:
            found.append((result.id, compared.reason))

    @property
    def compared(self) -> int:
        """How many cases the baseline had."""
        return sum(number for change, number in self.changes.items() if change not in ("new", "changed"))

    def counts(self, vanished: int) -> str:
        """All counts in one line."""
        parts = [f"{self.changes[change]:,} {words}" for change, (words, _) in COUNTED.items() if self.changes[change]]
        return ", ".join([*parts, *([f"{vanished:,} {VANISHED}"] if vanished else [])]) or "no case was compared"

    def bits_line(self) -> str:
        """ "bits: 2,310 of 2,402 outputs as before"; "" where none could be compared."""
        return f"bits: {self.same_bits:,} of {count(self.bits, 'output')} as before" if self.bits else ""

    def lines(self, vanished: Sequence[str], width: int) -> Iterator[str]:
        """What is listed, by kind."""
        for change, (words, lists) in COUNTED.items():
            if lists and self.changes[change]:
                yield from _listing(f"{words}:", self.listed[change], self.changes[change], width)
        if vanished:
            found = [(id, "") for id in vanished[:LISTED]]
            yield from _listing(f"{VANISHED}, the dump has them no more:", found, len(vanished), width)


def _listing(title: str, found: Iterable[tuple[str, str]], number: int, width: int) -> Iterator[str]:
    yield title
    for id, reason in found:
        yield f"  {id}"
        yield from wrap(reason, "    ", "    ", width)
    if number > LISTED:
        yield f"  and {number - LISTED:,} more"
