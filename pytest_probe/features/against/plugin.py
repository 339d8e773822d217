"""--probe-against: each call of a dump compared with the same call of another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import Case, CaseOutcome, Question
from pytest_probe.check.pair_metrics import answer_of
from pytest_probe.errors import DumpError, SettingsError
from pytest_probe.export.two_dumps import write_tables
from pytest_probe.features.against.compare import Comparing, Ranks, Together
from pytest_probe.features.against.dump_map import DumpMap, fused, names_of, read_map
from pytest_probe.features.against.judging import Found
from pytest_probe.features.against.matching import Match, match
from pytest_probe.features.against.report import SUSPECT, UNCOMPARED, Report, Unmatched
from pytest_probe.features.against.standards import CLOSENESS
from pytest_probe.model.dump import Dump
from pytest_probe.model.result import Result
from pytest_probe.model.run import RECORDED
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.items import ProbeItem, frame_of, module_of
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.records import read_dump
from pytest_probe.records.labels import natural_order
from pytest_probe.reports.selected import id_list
from pytest_probe.reports.terminal import count
from pytest_probe.settings import RawOptions, Settings, files_of

OPTION = "--probe-against"
_STEP = re.compile(r"(?:^|[^a-z])(?:step|pass)_?(\d+)", re.I)
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|proc)_?(\d+)", re.I)


class Counterpart(Struct, frozen=True):
    """What a dump of A is compared with: a dump of B, which holds what `of_a` dumps of A hold together; or several,
    `of_b`, which together hold what this one holds. index is this dump's place among those of A."""

    b: Path
    of_a: tuple[Path, ...] = ()
    of_b: tuple[Path, ...] = ()
    index: int = 0


def counterparts(here: Sequence[Path], there: Sequence[Path], *, in_parts: bool) -> dict[Path, Counterpart]:
    """That of each dump of A; of the steps that both sides have, where they have one in common. in_parts: ranks of one
    side may hold parts of what the other side holds.

    Raises SettingsError, with both lists, where the numbers of dumps do not fit.
    """
    # The dumps of each step, in the order of their ranks.
    steps: list[dict[int, list[Path]]] = [{}, {}]
    for found, side in zip(steps, (here, there), strict=True):
        for path in sorted(side, key=lambda path: (_last(_STEP, path), _last(_RANK, path), natural_order(path))):
            found.setdefault(_last(_STEP, path), []).append(path)
    common = steps[0].keys() & steps[1].keys()
    if common:
        steps = [{step: dumps for step, dumps in side.items() if step in common} for side in steps]
    else:
        alike = len(steps[0]) == len(steps[1])
        steps = [dict(enumerate(step.values())) for step in steps] if alike else [{0: [*here]}, {0: [*there]}]
    return dict(pair for step, dumps in steps[0].items() for pair in _of_step(dumps, steps[1][step], in_parts=in_parts))


def _of_step(a: Sequence[Path], b: Sequence[Path], *, in_parts: bool) -> Iterator[tuple[Path, Counterpart]]:
    if len(a) == len(b):
        yield from ((path, Counterpart(other)) for path, other in zip(a, b, strict=True))
    elif in_parts and len(a) % len(b) == 0:
        count = len(a) // len(b)
        for place, path in enumerate(a):
            first = place - place % count
            yield path, Counterpart(b[place // count], of_a=tuple(a[first : first + count]), index=place % count)
    elif in_parts and len(b) % len(a) == 0:
        count = len(b) // len(a)
        for place, path in enumerate(a):
            parts = tuple(b[place * count : (place + 1) * count])
            yield path, Counterpart(parts[0], of_b=parts)
    else:
        layout = 'or, if ranks hold parts of tensors, a map with dims: {"*": auto} (--probe-against-map)'
        here, there = (", ".join(map(str, paths)) for paths in (a, b))
        wanted = f"give as many on both sides, {layout}; A: {here}; B: {there}"
        raise SettingsError(OPTION, f"{len(b)} dumps against {len(a)}", wanted)


def _last(pattern: re.Pattern[str], path: Path) -> int:
    """The last such number in a path; -1 if it has no such number."""
    found = [number for part in path.parts for number in pattern.findall(part)]
    return int(found[-1]) if found else -1


# Share of the shorter side's records: with less in common the two are not of one program.
_COMMON = 0.1
STANDARDS: Mapping[str, str] = {
    "auto": "outputs that differ are judged against float64 on both sides",
    **{name: close.help for name, close in CLOSENESS.items()},
}


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError for a standard that does not compare two dumps."""
    if settings.standard not in STANDARDS:
        raise options["standard"].wrong(f"with {OPTION} give {', '.join(STANDARDS)}")


class PairedCalls(Question):
    """A call of this dump compared with the same call of the other."""

    device = RECORDED
    # A report finds the first error by the places of records.
    placed = True

    def __init__(self, against: Against, both: Together) -> None:
        self._against, self._both = against, both
        self.suffix = "" if both.records("A") else " (only in B)"

    def run(self, case: Case) -> CaseOutcome:
        found = self._against.found(self._both)
        # What the check of the wrong side against float64 left has the tensors.
        left = self._against.checked(found.paired.suspect) or CaseOutcome(case, found.verdict)
        paired = found.paired
        if paired.status in SUSPECT:
            # The place of an error of the call's own in the program.
            frame, sources = frame_of(case), self._against.sources(self._both)
            line = "" if frame is None else f"{frame.file}:{frame.line}"
            named = ", ".join(f"{name} of {entry}" for name, entry in sources.items())
            paired = replace(paired, line=line, module=module_of(case), sources=named)
        return replace(left, verdict=replace(found.verdict, answers=(answer_of(paired),)))


class Against(Feature):
    standards = STANDARDS

    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._report = Report()

    @cached_property
    def _map(self) -> DumpMap:
        given = self.probe.settings.against_map
        return DumpMap() if given is None else read_map(given)

    @cached_property
    def _counterparts(self) -> Mapping[Path, Counterpart]:
        """What each dump is compared with. Raises SettingsError."""
        against, here = self.probe.settings.against, self.probe.dumps.paths
        assert against is not None
        if not here:
            raise SettingsError(OPTION, str(against), "it needs a dump to compare: add --probe-dump=PATH")
        return counterparts(here, files_of(OPTION, [against]), in_parts=bool(self._map.layouts))

    @cached_property
    def _others(self) -> Mapping[Path, Dump]:
        """The dumps of the other side. Raises SettingsError."""
        paths = {path for each in self._counterparts.values() for path in (each.b, *each.of_b)}
        try:
            return {path: read_dump(path, self.probe.registry.readers) for path in paths}
        except DumpError as error:
            raise SettingsError(OPTION, str(self.probe.settings.against), str(error)) from error

    @cached_property
    def _matches(self) -> Mapping[Path, list[Match]]:
        """Raises SettingsError where two dumps have too little in common."""
        found = {}
        for path, each in self._counterparts.items():
            dump, other = self.probe.dumps.read(path), self._others[each.b]
            found[path] = match(dump, other, self._map)
            both, *alone = counts(found[path])
            fewer = both + min(alone)
            too_few = both < _COMMON * fewer and self.probe.settings.against_map is None
            if too_few or (found[path] and not both):
                known = f"{both:,} of {fewer or max(alone):,} records have a counterpart in {dump.path}"
                wanted = f"{known}; give dumps of one program, or a map of names (--probe-against-map)"
                raise SettingsError(OPTION, str(other.path), wanted)
        if not any(found.values()):
            raise SettingsError(OPTION, str(self.probe.settings.against), "neither side has a record to compare")
        return found

    @cached_property
    def _comparing(self) -> Comparing:
        return Comparing(self.probe.checker.changed(keeps_sides=True), self.probe.settings.standard, self._map)

    @cached_property
    def _unmatched(self) -> Mapping[Path, Unmatched]:
        return {
            path: Unmatched(self._comparing, self.probe.dumps.read(path), self._others[each.b], self._matches[path])
            for path, each in self._counterparts.items()
        }

    def prepare(self) -> None:
        _ = self._matches

    def header(self) -> Iterable[str]:
        for path, each in self._counterparts.items():
            both, here, there = counts(self._matches[path])
            alone = f", {here:,} of A and {there:,} of B alone" if here or there else ""
            parts = f"; rank {each.index} of {len(each.of_a)} that together are B" if each.of_a else ""
            parts = f"; {len(each.of_b)} ranks of B together are A" if each.of_b else parts
            if self.probe.settings.against_map is not None:
                dumps = self.probe.dumps.read(path), self._others[each.b]
                rules = {rule for rule, _, _ in fused(*dumps, self._map)}
                for rule in self._map.unused([*map(names_of, dumps)], rules):
                    yield f"probe: {self.probe.settings.against_map}: {rule} matches nothing"
            yield f"probe: A is {self.probe.dumps.label(path)}, B {each.b}: {both:,} records of both{alone}{parts}"
        if self._alone:
            yield f"probe: {self._alone}"

    @cached_property
    def _alone(self) -> str:
        """The dumps that have no counterpart, as steps that one side has alone."""
        assert self.probe.settings.against is not None
        used = {path for each in self._counterparts.values() for path in (each.b, *each.of_b)}
        there = (path for path in files_of(OPTION, [self.probe.settings.against]) if path not in used)
        alone = [str(path) for path in (*self.probe.dumps.paths, *there) if path not in self._counterparts]
        return f"{count(len(alone), 'dump')} without a counterpart: {id_list(alone)}" if alone else ""

    def items(self, parent: ProbeFile, dump: Dump) -> Iterator[ProbeItem]:
        if dump.path not in self._counterparts:
            return
        each = self._counterparts[dump.path]
        other, ranks = self._others[each.b], None
        if each.of_a:
            ranks = Ranks("A", tuple(map(self.probe.dumps.read, each.of_a)), each.index)
        elif each.of_b:
            ranks = Ranks("B", tuple(self._others[path] for path in each.of_b), 0)
        for found in self._matches[dump.path]:
            for direction in found.directions:
                yield from self._items(parent, Together(dump, other, found, direction, ranks))

    def _items(self, parent: ProbeFile, both: Together) -> Iterator[ProbeItem]:
        here = both.records("A")
        record = next(iter(here or both.records("B")), None)
        if record is None or not self.probe.settings.selection.admits(record, both.direction):
            return
        yield ProbeItem.from_parent(
            parent,
            dump=both.a if here else both.b,
            record=record,
            direction=both.direction,
            dtype=None,
            keyword=None,
            question=PairedCalls(self, both),
        )

    def found(self, both: Together) -> Found:
        """The verdict on a match, and what it is."""
        found = self._unmatched[both.a.path].judged(self._comparing.found(both), both)
        if found.paired.status == "unmatched" and self.probe.settings.strict:
            found = replace(found, verdict=replace(found.verdict, verdict="error"))
        return found if self.probe.settings.out is None else self._comparing.with_rows(found, both)

    def checked(self, suspect: str) -> CaseOutcome | None:
        """What the check of a side against float64 left, for its tensors; None where there was none."""
        return self._comparing.worst("A" if suspect.startswith("A") else "B") if suspect else None

    def sources(self, both: Together) -> Mapping[str, str]:
        """Which earlier call made which input of A's record."""
        record = next(iter(both.records("A")), None)
        if record is None or self._comparing.is_compared_only(both.a, record):
            return {}
        return self._comparing.producers(both.a).of(record)

    def add(self, result: Result) -> bool | None:
        self._report.add(result)
        return None if result.against is None else result.against.status not in UNCOMPARED

    def end(self, reporting: Reporting) -> None:
        if self._alone and self.probe.settings.strict:
            reporting.trouble(f"--probe-strict: {self._alone}")
        for other in self._others.values():
            for text in other.damage:
                reporting.trouble(f"B is damaged, and its good records were compared: {text}")

    def tables(self, folder: Path) -> Iterable[Path]:
        stacks = {self.probe.dumps.label(path): self.probe.dumps.read(path).stack for path in self._counterparts}
        older = self.probe.settings.standard == "ptdbg-2.3"
        return write_tables(folder, stacks, advice_of="ptdbg_23" if older else "ptdbg_40")

    def summary(self, width: int) -> Summary:
        return Summary([*self._report.lines(width)], self._report.alarm, [*self._report.first_differences(width)])


def counts(found: list[Match]) -> tuple[int, int, int]:
    """How many records both sides have, how many A alone and how many B alone."""
    both = sum(bool(each.a and each.b) for each in found)
    return both, sum(bool(each.a and not each.b) for each in found), sum(bool(each.b and not each.a) for each in found)
