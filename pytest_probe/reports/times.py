"""The slowest cases of a run: beside another run, and by their share of the time of all."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import TypeAlias

from msgspec import Struct, field

from pytest_probe.model.measurement import CaseTime, microseconds
from pytest_probe.model.result import Result

# Cases in each of the two lists.
LISTED = 10
# Columns of a name that is not cut off.
NAME = 44
# What a list goes by, the name of the case, its time.
Entry: TypeAlias = tuple[float, str, CaseTime]


class TimeTally(Struct):
    """What the times of a run add up to, kept small: no result is held. total is in microseconds."""

    total: float = 0.0
    cases: int = 0
    by_ratio: list[Entry] = field(default_factory=list)
    by_share: list[Entry] = field(default_factory=list)
    # Cases without a time, above their limit, timed by one call, and too short to be compared.
    untimed: int = 0
    slower: int = 0
    once: int = 0
    too_short: int = 0

    def add(self, result: Result) -> None:
        time = result.time
        if time is None:
            return
        if time.median_us is None:
            self.untimed += 1
            return
        self.cases += 1
        self.total += time.median_us
        self.slower += time.is_slower
        self.once += time.note == "once"
        self.too_short += time.note == "too short"
        name = result.portable_id.name
        self.by_share = _slowest([*self.by_share, (time.median_us, name, time)])
        if time.beside is not None:
            self.by_ratio = _slowest([*self.by_ratio, (time.beside.ratio, name, time)])

    def lines(self) -> Iterator[str]:
        """Both lists, the slowest first; nothing where no case was timed."""
        if not (self.cases or self.untimed):
            return
        yield ", ".join(self._counts())
        if self.by_ratio:
            yield f"{'slowest beside the other run':<{NAME}} {'ratio':>7} {'time':>9} {'there':>9}"
        for ratio, name, time in self.by_ratio:
            there = microseconds(time.beside.median_us) if time.beside is not None else ""
            yield f"{_cut(name)} {ratio:>7.3g} {microseconds(time.median_us or 0.0):>9} {there:>9}"
        if self.by_share and self.total:
            yield f"{'slowest':<{NAME}} {'share':>7} {'time':>9}"
        for us, name, _ in self.by_share:
            yield f"{_cut(name)} {100 * us / self.total:>5.1f} % {microseconds(us):>9}"

    def _counts(self) -> Iterator[str]:
        cases = "1 case" if self.cases == 1 else f"{self.cases:,} cases"
        yield f"times: {cases}, {microseconds(self.total)} for one call of each"
        for number, words in (
            (self.slower, "slower than the limit"),
            (self.once, "timed once"),
            (self.too_short, "too short"),
            (self.untimed, "not timed"),
        ):
            if number:
                yield f"{number:,} {words}"


def _slowest(found: list[Entry]) -> list[Entry]:
    return nsmallest(LISTED, found, key=lambda entry: (-entry[0], entry[1]))


def _cut(name: str) -> str:
    return f"{name if len(name) <= NAME else f'{name[: NAME - 3]}...':<{NAME}}"
