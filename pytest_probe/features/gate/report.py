"""What a run and a failing item say of the baseline that they were compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from pytest_probe.features.gate.gate import Judgement
from pytest_probe.model.baseline import Change
from pytest_probe.model.result import Result
from pytest_probe.reports.terminal import count, wrap

_HEADINGS = {"worse": "worse than the baseline", "bits": "other bits than the baseline"}
# How the one line of pytest's summary begins.
SHORT = {"worse": "worse", "bits": "other bits"}
# How many cases of each kind are listed.
_MAX_LISTED = 10
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
_VANISHED = "vanished"


def heading(judgement: Judgement | None) -> str:
    """What the case is compared with the baseline, where that fails it; else ""."""
    return _HEADINGS[judgement.compared.change] if judgement is not None and judgement.fails else ""


def table(judgement: Judgement | None) -> Iterator[str]:
    """The lines of a failing item, for each output that differs."""
    if judgement is None or not judgement.fails:
        return
    compared = judgement.compared
    if judgement.before != compared.case.verdict:
        yield ""
        yield f"verdict in the baseline: {judgement.before}, now: {compared.case.verdict}"
    for output in judgement.outputs:
        if output.crcs is not None or any(row.factor != 1 for row in output.rows):
            yield ""
            yield f"{output.name:<20} {'baseline':>11} {'now':>11} {'factor':>8} {'limit':>7}"
            for row in output.rows:
                factor, limit = ("" if math.isinf(each) else f"{each:.3g}" for each in (row.factor, row.limit))
                mark = "  worse" if row.worse else ""
                numbers = f"{row.before:>11.4g} {row.now:>11.4g} {factor:>8} {limit:>7}"
                yield f"  {row.metric:<18} {numbers}{mark}".rstrip()
            if output.crcs is not None:
                yield f"  {'CRC-32':<18} {output.crcs[0]:>11} {output.crcs[1]:>11}"


class GateTally(Struct):
    """The cases of a run by what they are compared with the baseline; listed holds the first of each kind, with
    reasons."""

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
        if COUNTED[compared.change][1] and len(found) < _MAX_LISTED:
            found.append((result.id, compared.reason))

    @property
    def compared(self) -> int:
        """How many cases the baseline had."""
        return sum(number for change, number in self.changes.items() if change not in ("new", "changed"))

    def counts(self, vanished: int) -> str:
        """All counts in one line."""
        parts = [f"{self.changes[change]:,} {words}" for change, (words, _) in COUNTED.items() if self.changes[change]]
        return ", ".join([*parts, *([f"{vanished:,} {_VANISHED}"] if vanished else [])]) or "no case was compared"

    def bits_line(self) -> str:
        """ "bits: 2,310 of 2,402 outputs as before"; "" where none could be compared."""
        return f"bits: {self.same_bits:,} of {count(self.bits, 'output')} as before" if self.bits else ""

    def lines(self, vanished: Sequence[str], width: int) -> Iterator[str]:
        """The listed cases, by kind."""
        for change, (words, lists) in COUNTED.items():
            if lists and self.changes[change]:
                yield from _listing(f"{words}:", self.listed[change], self.changes[change], width)
        if vanished:
            found = [(id, "") for id in vanished[:_MAX_LISTED]]
            yield from _listing(f"{_VANISHED}, the dump has them no more:", found, len(vanished), width)


def _listing(title: str, found: Iterable[tuple[str, str]], number: int, width: int) -> Iterator[str]:
    yield title
    for id, reason in found:
        yield f"  {id}"
        yield from wrap(reason, "    ", "    ", width)
    if number > _MAX_LISTED:
        yield f"  and {number - _MAX_LISTED:,} more"
