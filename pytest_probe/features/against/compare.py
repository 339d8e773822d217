"""A match of two dumps, compared: each side is put together, and judged against float64 where that is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Case, CaseOutcome, CaseRuns, Checker
from pytest_probe.check.difference_names import differences
from pytest_probe.check.difference_names import joined as joined_names
from pytest_probe.errors import RecordError
from pytest_probe.features.against.dump_map import DumpMap, cut, joined
from pytest_probe.features.against.judging import UNMATCHED, Found, Pair, Values
from pytest_probe.features.against.matching import Match
from pytest_probe.features.against.sides import TENSORS, AnyTensor, Producers, Side, compared
from pytest_probe.features.against.standards import CLOSENESS, line_of, rows_of
from pytest_probe.model.dump import Direction, Dump, Record
from pytest_probe.model.pairing import Paired, SideName, Status
from pytest_probe.model.verdict import SEVERITY, Verdict
from pytest_probe.numerics.dtypes import is_floating
from pytest_probe.standards.tables import classes_of

SIDES: tuple[SideName, ...] = ("A", "B")


class Ranks(Struct, frozen=True):
    """The dumps of several ranks of one side that together are one dump of the other; index is this one's place."""

    side: SideName
    dumps: tuple[Dump, ...]
    index: int


class Together(Struct, frozen=True):
    """A match in one direction: what each side's dump has of it."""

    a: Dump
    b: Dump
    match: Match
    direction: Direction
    ranks: Ranks | None = None

    def dump(self, side: SideName) -> Dump:
        return self.a if side == "A" else self.b

    def records(self, side: SideName) -> list[Record]:
        return [record for record in self.match.of(side) if self.direction in directions_of(record)]

    @property
    def entry(self) -> str:
        """That of A, else that of B."""
        return f"{(self.records('A') or self.records('B'))[0].name}.{self.direction}"

    @property
    def is_random(self) -> bool:
        """Are outputs of the API drawn, or memory that nobody has written to?"""
        side: SideName = "A" if self.match.a else "B"
        record = self.records(side)[0]
        api = frameworks.signatures(self.dump(side).framework).canonical(f"{record.namespace}.{record.api}")
        return not classes_of(api).isdisjoint(("random", "uninitialised"))


def directions_of(record: Record) -> tuple[Direction, ...]:
    """The sides that a record's dump has, replayed or not."""
    known = record.directions
    return known if record.node is None or "backward" in known else (*known, "backward")


class Comparing:
    """Compares matches with a checker that judges stored outputs, and keeps both sides."""

    def __init__(self, checker: Checker, standard: str, given: DumpMap) -> None:
        self._checker, self._standard, self._map = checker, standard, given
        self._runs = {side: CaseRuns(checker) for side in SIDES}
        # The worst of the match that is compared.
        self._worst: dict[SideName, CaseOutcome] = {}
        self._producers: dict[Path, Producers] = {}
        # Records by name, by the identity of their dump.
        self._named: dict[int, Mapping[str, Record]] = {}
        self._compared_only: dict[int, frozenset[int]] = {}

    def found(self, both: Together) -> Found:
        """The verdict; of a broken record, or file, a skip."""
        self._worst.clear()
        try:
            if both.match.repeats is not None:
                return self._repeated(both, both.match.repeats)
            if not (both.records("A") and both.records("B")):
                return self._alone(both)
            return self._together(both)
        except RecordError as error:
            return Found(Verdict("skip", self._standard, str(error), error.kind), Paired("incomparable"))

    def _alone(self, both: Together) -> Found:
        """A call that one side has alone may be wrong all the same."""
        side: SideName = "A" if both.records("A") else "B"
        there = both.dump("B" if side == "A" else "A").path
        unmatched = Verdict("skip", self._standard, f"not in {there}", UNMATCHED)
        own = self._own(both, side) if self._has_values(both, side) else unmatched
        if own.verdict == "error":
            reason = f"own error of {side}: {own.headline}; not in {there}"
            return Found(replace(own, standard=self._standard, reason=reason), Paired("own", suspect=side))
        notes = (f"by itself: {own.verdict}",) if own is not unmatched else ()
        return Found(replace(unmatched, notes=notes), Paired("unmatched"))

    def _has_values(self, both: Together, side: SideName) -> bool:
        """Does the dump hold all that a replay needs?"""
        found = self._sides(both, side)[0]
        tensors = [value for values in (found.inputs, found.outputs) for value in values.values()]
        known = [value for value in tensors if isinstance(value, TENSORS)]
        return self._standard not in CLOSENESS and bool(known) and all(value.has_values for value in known)

    def _together(self, both: Together) -> Found:
        a, b = self._sides(both, "A"), self._sides(both, "B")
        ranks = self._ranks(both)
        whole = b[0] if both.ranks is not None and both.ranks.side == "A" else a[0]
        differing = _replicas(ranks, whole, lambda side: self.producers(side.dump).of(side.record).keys())
        if differing:
            verdict = Verdict("error", self._standard, f"replicas differ: {differing}")
            return Found(verdict, Paired("replicas", f"{both.records('B')[0].name}.{both.direction}"))
        one, other = self._joint(both, a, b, ranks)
        of_calls = self.is_compared_only(both.a, a[0].record) and bool(both.a.records and both.b.records)
        in_parts = both.ranks is not None or len(a) + len(b) > 2
        pair = Pair(
            one,
            other,
            self._standard,
            lambda side: self._own(both, side),
            both.is_random,
            of_calls,
            in_parts,
            both.match.note,
            lambda: self._difference(both),
        )
        found = pair.judged()
        record = both.records("A")[0]
        if not found.differing or in_parts or both.direction == "backward" or self.is_compared_only(both.a, record):
            return found
        producers = self.producers(both.a)
        made = producers.makers(record)
        leaves = ", ".join(name for name in found.differing if name not in made)
        return replace(found, paired=replace(found.paired, leaves=leaves))

    def with_rows(self, found: Found, both: Together) -> Found:
        """With those of other tools' tables; none of a broken record, and none of what B has alone."""
        try:
            other: Side | None
            if found.pair is not None:
                one, other = found.pair.a, found.pair.b
            else:
                a, b = self._sides(both, "A"), self._sides(both, "B")
                if not a:
                    return found
                one, other = self._joint(both, a, b, self._ranks(both)) if b else (a[0], None)
        except RecordError:
            return found
        rows = tuple(rows_of(one, other, found.equal))
        return replace(found, paired=replace(found.paired, rows=rows, dump_line=line_of(one)))

    def _joint(self, both: Together, a: Sequence[Side], b: Sequence[Side], ranks: Sequence[Side]) -> tuple[Side, Side]:
        """Both sides as they are compared: what one of them has in parts is put together, or the other one is cut."""
        one, other = a[0], b[0]
        layout = self._map.layout_of(one.entry, other.entry)
        if both.ranks is not None and both.ranks.side == "A":
            if layout is not None and layout.partial and ranks:
                # Its outputs are parts that are to be added.
                one = replace(one, outputs=joined(ranks, one, layout).outputs)
            other = cut(other, one, both.ranks.index, len(both.ranks.dumps))
        elif both.ranks is not None:
            other = joined(ranks, one, layout)
        elif len(a) > 1:
            one = joined(a, other)
        elif len(b) > 1:
            other = joined(b, one)
        return one, other

    def worst(self, side: SideName) -> CaseOutcome | None:
        """What the worst check of a side of the last match left; None where there was none."""
        return self._worst.get(side)

    def is_compared_only(self, dump: Dump, record: Record) -> bool:
        """Is it a module, say, that nothing replays?"""
        if id(dump) not in self._compared_only:
            self._compared_only[id(dump)] = frozenset(map(id, dump.compare_only))
        return id(record) in self._compared_only[id(dump)]

    def producers(self, dump: Dump) -> Producers:
        """Which calls of a dump made which inputs."""
        if dump.path not in self._producers:
            self._producers[dump.path] = Producers(dump)
        return self._producers[dump.path]

    def tensors(self, both: Together, side: SideName) -> Mapping[str, AnyTensor]:
        """All that a side of a match got and gave. Raises RecordError."""
        found = [{**each.inputs, **each.outputs} for each in self._sides(both, side)[:1]]
        return {name: value for each in found for name, value in each.items() if isinstance(value, TENSORS)}

    def _sides(self, both: Together, side: SideName) -> list[Side]:
        return [Side.of(both.dump(side), record, both.direction) for record in both.records(side)]

    def _of_ranks(self, ranks: Ranks | None, record: Record) -> Iterator[tuple[Dump, Record]]:
        """The same call in the dumps of all ranks that together are one dump of the other side."""
        for dump in () if ranks is None else ranks.dumps:
            if id(dump) not in self._named:
                self._named[id(dump)] = {each.name: each for each in (*dump.records, *dump.compare_only)}
            if record.name in self._named[id(dump)]:
                yield dump, self._named[id(dump)][record.name]

    def _ranks(self, both: Together) -> list[Side]:
        if both.ranks is None:
            return []
        found = self._of_ranks(both.ranks, both.records(both.ranks.side)[0])
        return [Side.of(dump, record, both.direction) for dump, record in found]

    def _repeated(self, both: Together, first: Record) -> Found:
        """A call that is computed again with equal inputs gives equal outputs, but for rounding."""
        side: SideName = "A" if both.match.a else "B"
        again = self._sides(both, side)[0]
        before = Side.of(both.dump(side), first, both.direction)
        if not Values.of(again.inputs, before.inputs).equal:
            return self._alone(both)
        notes = (f"computes {first.name} again",)
        if Values.of(again.outputs, before.outputs).agree:
            return Found(Verdict("pass", self._standard, notes=notes), Paired("equal", before.entry))
        own = self._own(both, side) if self._has_values(both, side) else None
        if own is not None and own.verdict == "error":
            reason = f"own error of {side}: {own.headline}; {first.name} gives something else"
            return Found(
                replace(own, standard=self._standard, reason=reason), Paired("own", before.entry, suspect=side)
            )
        if own is None and not both.is_random:
            reason = f"suspect: it differs from {first.name}, whose inputs are equal"
            return Found(Verdict("warning", self._standard, reason, notes=notes), Paired("own", before.entry))
        status: Status = "random" if both.is_random else "rounding"
        return Found(Verdict("pass", self._standard, notes=notes), Paired(status, before.entry))

    def _own(self, both: Together, side: SideName) -> Verdict:
        """The worst verdict on the stored outputs of a side's records; on those of all ranks that hold it together."""
        found = [(both.dump(side), record) for record in both.records(side)]
        if both.ranks is not None and both.ranks.side == side == "B":
            found = [*self._of_ranks(both.ranks, found[0][1])]
        judged = [self._checked(dump, record, both.direction, side) for dump, record in found]
        worst = self._worst[side] = max(judged, key=lambda checked: SEVERITY[checked.verdict.verdict])
        return worst.verdict

    def _difference(self, both: Together) -> str:
        """The name of what both sides differ by, where each is one record, which has just been judged."""
        last = ((self._runs[side].last, both.records(side)) for side in SIDES)
        checks = [found for found, records in last if found is not None and [found.case.record] == records]
        if both.ranks is not None or len(checks) < 2 or any(each.case.direction != both.direction for each in checks):
            return ""
        return joined_names(differences(self._checker, *checks))

    def _checked(self, dump: Dump, record: Record, direction: Direction, side: SideName) -> CaseOutcome:
        case = Case(dump, record, direction)
        missing = frameworks.unavailable(dump.framework, stored=True)
        if missing or self.is_compared_only(dump, record) or direction not in record.directions:
            words = missing or "modules and autograd nodes are compared, not replayed"
            return CaseOutcome(case, Verdict("skip", self._standard, words, "not replayed"))
        return self._runs[side].run(case)


def _replicas(ranks: Sequence[Side], whole: Side, made: Callable[[Side], Set[str]]) -> str:
    """Which tensor differs between ranks that should hold the same; "" where none does. Equal inputs give equal
    outputs. And what one rank has as the other side has it, each rank with a tensor of that shape has, but for inputs
    that an earlier call made, which was judged itself; made gives their names."""
    for number, rank in enumerate(ranks[1:], 1):
        inputs, outputs = Values.of(rank.inputs, ranks[0].inputs), Values.of(rank.outputs, ranks[0].outputs)
        if inputs.equal and not outputs.agree:
            name = next(name for name, tensors in outputs.pairs.items() if not tensors.agrees)
            return f"{name} of ranks {number} and 0, whose inputs are equal"
        for name, tensors in inputs.pairs.items():
            # What holds a rank's number, or its share of the indices, differs by intent.
            if (
                tensors.agrees
                or name not in whole.inputs
                or tensors.a.spec.size < 2
                or not is_floating(tensors.a.dtype)
            ):
                continue
            one, two = (compared(tensor, whole.inputs[name]) for tensor in (tensors.a, tensors.b))
            wrong = rank if two.equal else ranks[0]
            if one.is_recorded and two.is_recorded and one.equal != two.equal and name not in made(wrong):
                return f"{name} of ranks {number} and 0; the other side has it as rank {number if one.equal else 0}"
    return ""
