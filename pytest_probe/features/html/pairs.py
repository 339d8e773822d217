"""What the page shows of two sides (--probe-against): a row for each pair, which refers to that of its case."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_probe.model.pairing import Paired
from pytest_probe.model.result import Result, number
from pytest_probe.reports.case_metrics import short

# Letters of a name or a sentence that are shown.
_TEXT = 300


class Pairs:
    """The pairs of a run, as JSON; none where it compares no dumps."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self._statuses: dict[str, int] = {}

    def add(self, row: int, result: Result) -> None:
        """row: that of the case."""
        paired = result.against
        if paired is None:
            return
        status = self._statuses.setdefault(paired.status, len(self._statuses))
        told = _told(paired, result.portable_id.entry)
        while told and told[-1] in ("", 0):
            told.pop()
        self.rows.append(msgspec.json.encode([row, status, *told]))

    def data(self) -> bytes:
        statuses = msgspec.json.encode([*self._statuses])
        return b'{"statuses":%s,"rows":[%s]}' % (statuses, b",\n".join(self.rows))


def _told(paired: Paired, entry: str) -> list[Any]:
    """In the order of script/pairs.js; B's entry only where it is another than A's."""
    ratios = ("" if value is None else short(number(value)) for value in (paired.noise_a, paired.noise_b))
    other = "" if paired.other == entry else paired.other
    texts = (other, paired.suspect, paired.difference, paired.sources)
    return [short(number(paired.gap)), paired.nearer, *ratios, *map(_cut, texts)]


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
