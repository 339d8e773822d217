"""What a run adds up to: verdicts, reasons of skips, the worst APIs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from pytest_probe.model.fatal_call import FUZZED
from pytest_probe.model.result import Plain, Result, number, rank
from pytest_probe.model.verdict import NON_DETERMINISTIC, SEVERITY, UNDECIDED, Outcome
from pytest_probe.reports.times import TimeTally

# How the notes of a search begin; on calls that break a contract, and on how many were drawn.
CONTRACT = f"{FUZZED}contract: "
_CALLS = re.compile(rf"{FUZZED}(\d+) calls, (\d+) of them rejected")
# Perturbed runs of a verdict that asked for all.
ALL_RUNS = 4
# Warnings that the summary lists.
WARNINGS = 20


class Worst(Struct):
    """The worst of one API: its largest noise ratio with that output's limit, its largest ULP, its worst verdict.

    bound tells that the ratio is an upper bound: the verdict was clear before all perturbed runs were made.
    """

    api: str
    ratio: float = -1.0
    limit: float = math.nan
    ulp: float = math.nan
    verdict: Outcome = "skip"
    bound: bool = False


class Tally(Struct):
    """What a run adds up to, kept small: no result is held.

    differing counts cases whose runs differ, undecided those of which an output could not be judged, emulated those
    whose device computed 16 bit in float32, folded those that others stand for; warnings holds id and reason of the
    first WARNINGS, contracts those of drawn calls that break one; drawn counts drawn calls, and those that the
    reference rejected.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    apis: dict[str, Worst] = field(default_factory=dict)
    differing: int = 0
    undecided: int = 0
    emulated: int = 0
    folded: int = 0
    warnings: list[tuple[str, str]] = field(default_factory=list)
    contracts: list[tuple[str, str]] = field(default_factory=list)
    drawn: Counter[str] = field(default_factory=Counter)
    times: TimeTally = field(default_factory=TimeTally)

    def add(self, result: Result) -> None:
        self.differing += any(note.startswith(NON_DETERMINISTIC) for note in result.notes)
        self.undecided += any(output.reason.startswith(UNDECIDED) for output in result.outputs)
        self.emulated += result.is_emulated and result.verdict != "skip"
        self.folded += result.folded
        self.times.add(result)
        self.verdicts[result.verdict] += 1
        if result.verdict == "skip":
            self.skips[result.kind or result.reason] += 1
        if result.verdict == "warning" and len(self.warnings) < WARNINGS:
            self.warnings.append((result.id, _why(result)))
        self._add_search(result)
        worst = self.apis.setdefault(result.api, Worst(result.api))
        worst.verdict = max(worst.verdict, result.verdict, key=SEVERITY.__getitem__)
        for output in result.outputs:
            _widen(worst, output.metrics)

    def _add_search(self, result: Result) -> None:
        for note in result.notes:
            if note.startswith(CONTRACT):
                self.contracts.append((result.id, note.removeprefix(CONTRACT)))
            counted = _CALLS.match(note)
            if counted is not None:
                self.drawn["calls"] += int(counted[1])
                self.drawn["rejected"] += int(counted[2])

    def ranking(self, count: int) -> Sequence[Worst]:
        """The `count` worst APIs by noise ratio; those that reach no ratio above 0 are left out."""
        ranked = sorted(self.apis.values(), key=lambda worst: -rank(worst.ratio))
        return [worst for worst in ranked[:count] if not worst.ratio <= 0]


def _why(result: Result) -> str:
    """The reason of a result in one line, that of its worst output where it has none of its own."""
    outputs = (f"{output.name}: {output.reason}" for output in result.outputs if output.verdict == result.verdict)
    lines = (result.reason or next(outputs, "")).splitlines()
    return lines[0] if lines else ""


def _widen(worst: Worst, metrics: Mapping[str, Plain]) -> None:
    ratio = number(metrics.get("noise_ratio", -1.0))
    if rank(ratio) > rank(worst.ratio):
        worst.ratio, worst.limit = ratio, number(metrics.get("noise_ratio_limit"))
        worst.bound = number(metrics.get("k", ALL_RUNS)) < ALL_RUNS
    if "max_ulp" in metrics:
        worst.ulp = max(number(metrics["max_ulp"]), -1.0 if math.isnan(worst.ulp) else worst.ulp, key=rank)
