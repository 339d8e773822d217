"""A metric of each case over earlier runs, in a letter a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_probe.errors import SettingsError
from pytest_probe.features.history.file import opened
from pytest_probe.features.history.queries import series
from pytest_probe.numerics.error_plots import LETTERS

# What is drawn, of so many runs.
METRIC, RUNS = "noise_ratio", 24
# One letter a run: a space where the case has no number, 0 for none, then half powers of two from 2**-10 on.
LOWEST = -10


class Sparklines(Struct, frozen=True):
    """metric: what is drawn; runs: when each began, the oldest first; lines: the metric of each case by id, None where
    a run has none."""

    metric: str
    runs: Sequence[str]
    lines: Mapping[str, Sequence[float | None]]

    def data(self, ids: Sequence[str]) -> dict[str, Any]:
        """For the page: a line for each case, in the order of its rows."""
        texts = ["".join(map(_letter, self.lines.get(id, ()))) for id in ids]
        return {"metric": self.metric, "runs": self.runs, "lines": texts}


def sparklines(history: Path | None, ids: Sequence[str]) -> Sparklines | None:
    """Of the cases with these ids; None without a history, or where it cannot be read any more."""
    if history is None or not history.exists():
        return None
    try:
        with opened(history) as file:
            runs, lines = series(file, ids, METRIC, RUNS)
    except SettingsError:
        return None
    return Sparklines(METRIC, [run.started for run in runs], lines)


def _letter(value: float | None) -> str:
    if value is None:
        return " "
    if math.isnan(value) or math.isinf(value):
        return LETTERS[-1]
    if value <= 0:
        return LETTERS[0]
    return LETTERS[min(len(LETTERS) - 2, max(1, round(2 * (math.log2(value) - LOWEST)) + 1))]
