"""What a page shows of other runs: the run that it is compared with, and one metric over a history of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.model.baseline import KeptCase
from pytest_probe.model.baseline import number as kept_number
from pytest_probe.model.result import Result, rank
from pytest_probe.numerics.error_plots import LETTERS, round_digits
from pytest_probe.reports.case_metrics import metrics_of, short
from pytest_probe.reports.history_file import open_history, series
from pytest_probe.reports.result_set import ResultSet

# The metric that sparklines draw, and the number of runs.
_METRIC, RUNS = "noise_ratio", 24
# One letter a run: a space where the case has no number, 0 for none, then half powers of two from 2**-10 on.
_LOWEST_EXPONENT = -10
# The metrics that are compared; earlier ones decide first.
COMPARED_METRICS = ("noise_ratio", "max_ulp", "mean_ulp", "time_us")
# A factor that is less than this is no move: two times of one kernel always differ.
_MIN_FACTORS = (1.0, 1.0, 1.0, 1.5)
# Cases that moved, and names on one side, that the page lists.
_MOVED, _LISTED = 1000, 2000


def sparklines(history: Path | None, ids: Sequence[str]) -> dict[str, Any] | None:
    """For the page: a line for each of these cases, over the last runs; None without a history, or where it cannot be
    read any more."""
    if history is None or not history.exists():
        return None
    try:
        with open_history(history) as file:
            runs, lines = series(file, ids, _METRIC, RUNS)
    except SettingsError:
        return None
    texts = ["".join(map(letter_of, lines.get(id, ()))) for id in ids]
    return {"metric": _METRIC, "runs": [run.started for run in runs], "lines": texts}


def letter_of(value: float | None) -> str:
    """Of one run; None where it has no such number."""
    if value is None:
        return " "
    if math.isnan(value) or math.isinf(value):
        return LETTERS[-1]
    if value <= 0:
        return LETTERS[0]
    return LETTERS[min(len(LETTERS) - 2, max(1, round(2 * (math.log2(value) - _LOWEST_EXPONENT)) + 1))]


class OtherCase(Struct, frozen=True):
    """A case of the other run: its verdict, and the compared metrics that it has."""

    verdict: str
    numbers: Mapping[str, float]

    @classmethod
    def of(cls, case: Result | KeptCase) -> OtherCase:
        if isinstance(case, Result):
            return cls(case.verdict, {name: value for name, value in metrics_of(case) if name in COMPARED_METRICS})
        numbers: dict[str, float] = {}
        for output in case.outputs:
            for name in COMPARED_METRICS[:3]:
                value = kept_number(getattr(output, name))
                if not math.isnan(value):
                    numbers[name] = max(value, numbers.get(name, 0.0), key=rank)
        if case.time is not None:
            numbers["time_us"] = case.time.low_us
        return cls(case.verdict, numbers)


class Comparison:
    """The cases of this run compared with another run's. notes say what differs between the two; alike: both are of the
    same dumps, else nothing is compared."""

    def __init__(self, other: ResultSet[OtherCase], notes: Sequence[str] = (), *, alike: bool = True) -> None:
        self.other = other
        self._notes, self._alike = notes, alike
        self._moves: list[tuple[float, int, list[Any]]] = []
        self._own: list[int] = []
        self._met: set[str] = set()

    def add(self, row: int, result: Result) -> None:
        """Take in the case of a row."""
        id = self.other.id_of(result.id) if self._alike else None
        if id is None:
            self._own.append(row)
            return
        self._met.add(id)
        before, now = self.other.cases[id], OtherCase.of(result)
        factors = [_factor(before.numbers, now.numbers, name) for name in COMPARED_METRICS]
        changed = before.verdict != now.verdict
        limits = ((factor, least) for factor, least in zip(factors, _MIN_FACTORS, strict=True) if factor is not None)
        if changed or any(not 1 / least <= factor <= least for factor, least in limits):
            shown = [row, before.verdict, *(_displayed(before.numbers, name) for name in COMPARED_METRICS)]
            shown += [_displayed(now.numbers, name) for name in COMPARED_METRICS]
            # How far the furthest of the metrics moved, in powers of two: a change to or from 0 is furthest.
            errors = [factor for factor in factors[:3] if factor is not None]
            powers = (abs(math.log2(each)) if 0 < each < math.inf else 1024.0 for each in errors)
            self._moves.append((-max(powers, default=0.0) - 1e6 * changed, row, shown))

    def data(self) -> dict[str, Any]:
        """For the page: the cases that moved most, and the cases of one run only."""
        moves = sorted(self._moves, key=lambda move: move[:2])
        there = [id for id in self.other.cases if id not in self._met]
        return {
            "name": self.other.name,
            "kind": self.other.kind,
            "notes": self._notes,
            "alike": self._alike,
            "metrics": COMPARED_METRICS,
            "common": len(self._met),
            "moved": len(moves),
            "moves": [shown for *_, shown in moves[:_MOVED]],
            "only_here": len(self._own),
            "only_there": len(there),
            "here": self._own[:_LISTED],
            "there": [
                [id, case.verdict, *(_displayed(case.numbers, name) for name in COMPARED_METRICS[:2])]
                for id, case in ((id, self.other.cases[id]) for id in there[:_LISTED])
            ],
        }


def _displayed(numbers: Mapping[str, float], name: str) -> Any:
    return short(numbers[name]) if name in numbers else ""


def _factor(before: Mapping[str, float], now: Mapping[str, float], name: str) -> float | None:
    """How many times as large a metric is; None where it is on one side only."""
    if name not in before or name not in now:
        return None
    old, new = (round_digits(numbers[name], 4) for numbers in (before, now))
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 1.0
    return new / old if old and not math.isnan(old) else math.inf
