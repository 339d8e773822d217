"""What a run adds up to: verdicts, reasons of skips, the worst APIs, the slowest cases, and overflows."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from typing import Any, TypeAlias

from msgspec import Struct, field

from pytest_probe.model.dump import Frame
from pytest_probe.model.measurement import PARTS, CaseTime, microseconds
from pytest_probe.model.result import FUZZED, PortableId, Result, number, rank
from pytest_probe.model.verdict import NON_DETERMINISTIC, OVERFLOW, SEVERITY, UNDECIDED, Outcome
from pytest_probe.reports.groups import NO_LINE, GroupMember, Groups, Line
from pytest_probe.standards.finite import INHERITED
from pytest_probe.system.text import printable

# Cases in each of the two lists.
_MAX_LISTED = 10
# Columns of a name that is not cut off.
_NAME_WIDTH = 44
# An entry of a list: the number that orders it, the case's name, its time.
_Entry: TypeAlias = tuple[float, str, CaseTime]
# How the notes of a search begin; on calls that break a contract, and on how many were drawn.
_CONTRACT = f"{FUZZED}contract: "
_CALLS = re.compile(rf"{FUZZED}(\d+) calls, (\d+) of them rejected")
# Perturbed runs of a verdict that asked for all.
_ALL_RUNS = 4
# Warnings that the summary lists.
_MAX_WARNINGS = 20
# Of a column: the longest name of a part, and two blanks.
_WIDTH = max(map(len, PARTS)) + 2
# The worst kind of a record's outputs decides; these are no fault of a device.
_ORDER = ("normal", "saturated", "missed", "abnormal")
_HARMLESS = ("normal", "inherited", "saturated")
# Finds the place of a record in its dump, and the user's frame that made the call.
Place = Callable[[PortableId], tuple[tuple[int, ...], Frame | None]]


class TimeTally(Struct):
    """What the times of a run add up to, kept small: no result is held. total is in microseconds."""

    total: float = 0.0
    cases: int = 0
    by_ratio: list[_Entry] = field(default_factory=list)
    by_share: list[_Entry] = field(default_factory=list)
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
            yield f"{'slowest compared with the other run':<{_NAME_WIDTH}} {'ratio':>7} {'time':>9} {'there':>9}"
        for ratio, name, time in self.by_ratio:
            there = microseconds(time.beside.median_us) if time.beside is not None else ""
            yield f"{_cut(name)} {ratio:>7.3g} {microseconds(time.median_us or 0.0):>9} {there:>9}"
        # On a busy machine each of a run's short calls may take no longer than an empty call: a time of zero.
        if not self.total:
            return
        yield f"{'slowest':<{_NAME_WIDTH}} {'share':>7} {'time':>9}"
        for us, name, _ in self.by_share:
            yield f"{_cut(name)} {100 * us / self.total:>5.1f} % {microseconds(us):>9}"

    def _counts(self) -> Iterator[str]:
        cases = "1 case" if self.cases == 1 else f"{self.cases:,} cases"
        yield f"times: {cases}, {microseconds(self.total)} for one call of each"
        for found, words in (
            (self.slower, "slower than the limit"),
            (self.once, "timed once"),
            (self.too_short, "too short"),
            (self.untimed, "not timed"),
        ):
            if found:
                yield f"{found:,} {words}"


def _slowest(found: list[_Entry]) -> list[_Entry]:
    return nsmallest(_MAX_LISTED, found, key=lambda entry: (-entry[0], entry[1]))


def _cut(name: str) -> str:
    return f"{name if len(name) <= _NAME_WIDTH else f'{name[: _NAME_WIDTH - 3]}...':<{_NAME_WIDTH}}"


class Worst(Struct):
    """The worst of one API: its largest noise ratio with that output's limit, its largest ULP, its worst verdict.

    bound: the ratio is an upper bound, since the verdict was clear before all perturbed runs were made.
    """

    api: str
    ratio: float = -1.0
    limit: float = math.nan
    ulp: float = math.nan
    verdict: Outcome = "skip"
    bound: bool = False

    @property
    def within(self) -> bool:
        """Is the ratio only known to be below the limit?"""
        return self.bound and self.verdict == "pass"


class Tally(Struct):
    """What a run adds up to, kept small: no result is held.

    differing counts cases whose runs differ, undecided counts cases with an output that could not be judged, emulated
    counts cases whose device computed 16 bit in float32, folded counts cases that others represent. warnings holds id
    and reason of the first WARNINGS, contracts the same of drawn calls that break a contract. drawn counts drawn calls,
    and calls that the reference rejected. initialising has the verdicts of calls that build the model. groups are those
    of errors and warnings.
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
    initialising: Counter[str] = field(default_factory=Counter)
    times: TimeTally = field(default_factory=TimeTally)
    groups: Groups = field(default_factory=Groups)

    def add(self, result: Result, place: Line = NO_LINE) -> None:
        """place: the line of the program that made the call, where the result does not tell it."""
        if SEVERITY[result.verdict] > SEVERITY["pass"]:
            self.groups.add(GroupMember.of(result, place))
        self.differing += any(note.startswith(NON_DETERMINISTIC) for note in result.notes)
        self.undecided += any(output.reason.startswith(UNDECIDED) for output in result.outputs)
        self.emulated += result.is_emulated and result.verdict != "skip"
        self.folded += result.folded
        self.times.add(result)
        self.verdicts[result.verdict] += 1
        self.initialising[result.verdict] += result.initialises
        if result.verdict == "skip":
            self.skips[result.kind or result.reason] += 1
        if result.verdict == "warning" and len(self.warnings) < _MAX_WARNINGS:
            # The reason of its worst output where it has none of its own.
            outputs = (f"{each.name}: {each.reason}" for each in result.decisive)
            self.warnings.append((result.id, next(iter((result.reason or next(outputs, "")).splitlines()), "")))
        for note in result.notes:
            if note.startswith(_CONTRACT):
                self.contracts.append((result.id, note.removeprefix(_CONTRACT)))
            elif (counted := _CALLS.match(note)) is not None:
                self.drawn["calls"] += int(counted[1])
                self.drawn["rejected"] += int(counted[2])
        worst = self.apis.setdefault(result.api, Worst(result.api))
        worst.verdict = max(worst.verdict, result.verdict, key=SEVERITY.__getitem__)
        for metrics in (output.metrics for output in result.outputs):
            ratio = number(metrics.get("noise_ratio", -1.0))
            if rank(ratio) > rank(worst.ratio):
                worst.ratio, worst.limit = ratio, number(metrics.get("noise_ratio_limit"))
                worst.bound = number(metrics.get("k", _ALL_RUNS)) < _ALL_RUNS
            if "max_ulp" in metrics:
                worst.ulp = max(number(metrics["max_ulp"]), -1.0 if math.isnan(worst.ulp) else worst.ulp, key=rank)

    def ranking(self, count: int) -> Sequence[Worst]:
        """The `count` worst APIs by noise ratio, without APIs that reach no ratio above 0."""
        shown = (worst for worst in self.apis.values() if not worst.ratio <= 0)
        return sorted(shown, key=lambda worst: (worst.within, -rank(worst.ratio)))[:count]


class Slowest:
    """With pytest's --durations: the slowest cases so far, and what their time went to. As many as count says, all
    where it is 0, none where it is None. least: the shortest duration, in seconds, that is shown."""

    def __init__(self, count: int | None, least: float) -> None:
        self._count, self._least = count, least
        self._found: list[tuple[float, str, tuple[float, ...]]] = []

    def add(self, result: Result) -> None:
        if self._count is None or result.duration < self._least or not result.parts:
            return
        case = result.duration, result.id, tuple(result.parts.get(part, 0.0) for part in PARTS)
        if self._count and len(self._found) >= self._count:
            heapq.heappushpop(self._found, case)
        else:
            heapq.heappush(self._found, case)

    def write(self, reporter: Any) -> None:
        """A table, the slowest case first, to pytest's terminal."""
        if not self._found:
            return
        reporter.write_sep("=", "slowest cases of the probe, in seconds")
        reporter.write_line(_row("total", *PARTS, "case"))
        for duration, id, parts in sorted(self._found, reverse=True):
            reporter.write_line(_row(*(f"{seconds:.3f}" for seconds in (duration, *parts)), id))


def _row(*cells: str) -> str:
    *numbers, case = cells
    return "".join(f"{cell:>{_WIDTH}}" for cell in numbers) + f"  {case}"


class Overflows(Struct):
    """The records that overflow, as `finite` finds them (the standard, or the question of `self`), by their ids, each
    with its kind."""

    kinds: dict[PortableId, str] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        found = [str(output.metrics[OVERFLOW]) for output in result.outputs if OVERFLOW in output.metrics]
        rank = {kind: place for place, kind in enumerate(_ORDER)}
        kind = "inherited" if result.kind == INHERITED else max(found, key=lambda kind: rank.get(kind, -1), default="")
        if kind:
            self.kinds[result.portable_id] = kind
        else:
            self.kinds.pop(result.portable_id, None)  # an attempt that was repeated

    def lines(self, place: Place, *, each: bool) -> Iterator[str]:
        """Text for the summary, in the order of the dumps: with a sentence of msprobe's for each record, or without."""
        if not self.kinds:
            return
        counts = Counter(self.kinds.values())
        kinds = (*_ORDER, "inherited")
        yield "overflows: " + ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind])
        ordered = sorted(self.kinds, key=lambda id: (id.label, place(id)[0]))
        for id in ordered if each else ():
            kind = self.kinds[id]
            if kind != "inherited":
                # As msprobe names a call: without the direction, where that is forward.
                called = id.name.removesuffix(".forward")
                yield f"The {called} overflow is {'a normal' if kind == 'normal' else 'an abnormal'} overflow."
        first = next((id for id in ordered if self.kinds[id] not in _HARMLESS), None)
        if first is not None:
            yield f"first {self.kinds[first]}: {first}"
            frame = place(first)[1]
            if frame is not None:
                yield printable(f"  called at {frame.description}")
