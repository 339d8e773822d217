"""What a run and a failing item say of the baseline that they were compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from pytest_probe.features.gate.gate import Judgement
from pytest_probe.model.baseline import Change
from pytest_probe.model.result import Result
from pytest_probe.reports.terminal import listed

HEADINGS = {"worse": "worse than the baseline", "bits": "other bits than the baseline"}
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


def table(judgement: Judgement) -> Iterator[str]:
    """The lines of a failing item, for each output that differs."""
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

    def counts(self, vanished: int) -> str:
        """All counts in one line."""
        parts = [f"{self.changes[change]:,} {words}" for change, (words, _) in COUNTED.items() if self.changes[change]]
        return ", ".join([*parts, *([f"{vanished:,} {_VANISHED}"] if vanished else [])]) or "no case was compared"

    def lines(self, vanished: Sequence[str], width: int) -> Iterator[str]:
        """The listed cases, by kind."""
        for change, (words, lists) in COUNTED.items():
            if lists and self.changes[change]:
                yield from listed(f"{words}:", self.listed[change], width, _more(self.changes[change]))
        if vanished:
            found = [(id, "") for id in vanished[:_MAX_LISTED]]
            yield from listed(f"{_VANISHED}, the dump has them no more:", found, width, _more(len(vanished)))


def _more(number: int) -> str:
    return f"{number - _MAX_LISTED:,} more" if number > _MAX_LISTED else ""
