"""What a run of two dumps says at its end: the first own error of each rank and step, and how errors go on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from pytest_probe.model.pairing import Paired, Status
from pytest_probe.model.result import PortableId, Result, number
from pytest_probe.reports.terminal import wrap

_WORDS: Mapping[Status, str] = {
    "equal": "equal",
    "rounding": "differ by rounding",
    "recovers": "recover",
    "inherited": "inherited",
    "own": "own errors",
    "differs": "differ",
    "replicas": "replicas that differ",
    "random": "random",
    "unmatched": "unmatched",
    "incomparable": "not comparable",
}
_BLOCKS = "▁▂▃▄▅▆▇█"
# Relative errors that the lowest and the highest block stand for, as powers of 10.
_LOWEST, _HIGHEST = -8.0, 0.0


class _Row(Struct, frozen=True):
    id: PortableId
    order: tuple[int, int]
    paired: Paired
    reason: str
    verdict: str


class Report(Struct):
    """Collects results as they come, in any order."""

    rows: list[_Row] = field(default_factory=list)

    def add(self, result: Result) -> None:
        if result.against is None:
            return
        backward = result.direction == "backward"
        place = result.place or 0
        order = (backward, -place if backward else place)
        self.rows.append(_Row(result.portable_id, order, result.against, result.reason, result.verdict))

    @property
    def alarm(self) -> str:
        same = bool(self.rows) and all(row.paired.status == "equal" for row in self.rows)
        return "all pairs are equal: are A and B two dumps?" if same else ""

    def lines(self, width: int) -> Iterator[str]:
        """width: the columns of the terminal."""
        if not self.rows:
            return
        found = Counter(row.paired.status for row in self.rows)
        counts = ", ".join(f"{found[status]:,} {words}" for status, words in _WORDS.items() if found[status])
        yield from wrap(f"A against B, {len(self.rows):,} pairs: {counts}", width=width)
        labels = dict.fromkeys(row.id.label for row in self.rows)
        for label in labels:
            own = sorted((row for row in self.rows if row.id.label == label), key=lambda row: row.order)
            yield from self._of_dump(label if len(labels) > 1 else "", own, width)

    def _of_dump(self, label: str, rows: Sequence[_Row], width: int) -> Iterator[str]:
        first = next((row for row in rows if row.paired.status in ("own", "replicas")), None)
        where = f"{label}: " if label else ""
        if first is not None:
            yield from wrap(f"{where}first own error: {first.id.name}: {first.reason}", width=width)
            yield from wrap(_advice(first), "    ", "  ", width)
        differing = [row for row in rows if number(row.paired.gap) > 0]
        if differing:
            yield f"{where}error along {len(rows):,} calls, from 1e-8 to 1 relative:"
            yield f"  {blocks([number(row.paired.gap) for row in rows], min(width, 100) - 4)}"


def _advice(row: _Row) -> str:
    if row.paired.status == "replicas":
        return "ranks should hold the same here: look at what they received and at this rank's memory"
    if row.verdict == "warning":
        return "by what the dumps hold it is suspect; record with tensors (--task tensor) to know"
    side = f"side {row.paired.suspect}" if row.paired.suspect else "the call"
    if row.id.direction == "backward":
        return f"its inputs and incoming gradients explain less: look at the backward of {side}"
    return f"its own inputs explain less: look at the implementation of {side}"


def blocks(gaps: Sequence[float], width: int) -> str:
    """A line of blocks, as high as the logarithm of the largest error of their calls; "·" where all are equal."""
    per = max(1, -(-len(gaps) // max(width, 1)))
    return "".join(_block(max(gaps[start : start + per])) for start in range(0, len(gaps), per))


def _block(gap: float) -> str:
    if not gap > 0:
        return "·"
    power = min(max(math.log10(gap), _LOWEST), _HIGHEST) if math.isfinite(gap) else _HIGHEST
    return _BLOCKS[round((power - _LOWEST) / (_HIGHEST - _LOWEST) * (len(_BLOCKS) - 1))]
