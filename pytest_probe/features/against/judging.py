"""The verdict on a call of which two dumps tell: are both sides equal, has a side an error of its own, or did both
start from other inputs?

Equal outputs need no run. Otherwise each side's stored outputs are judged against float64 on that side's own inputs, as
--probe-device=recorded judges them: an error there is the call's own, all else it has inherited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.pair_metrics import INCOMPARABLE, describe_pair, pair_of
from pytest_probe.features.against.sides import TENSORS, Side, TensorPair, compared
from pytest_probe.features.against.standards import CLOSENESS, Closeness
from pytest_probe.model.pairing import Paired, SideName, Status
from pytest_probe.model.verdict import Metric, Outcome, OutputVerdict, Verdict

# The kind of a skip of what the other side does not have.
UNMATCHED = "no such call on the other side"
# By how many roundoffs, and by how many times the relative difference of its inputs, the outputs of a call may differ
# that nothing replays.
_SUSPECT = 16


class Values(Struct, frozen=True):
    """Tensors of both sides by name, the names of tensors that one side has alone, and other values (numbers, texts)
    that differ, in words; settings are those of them that are no sizes or places, as eps or a mode."""

    pairs: Mapping[str, TensorPair]
    alone: Sequence[str]
    others: Sequence[str]
    settings: Sequence[str]

    @classmethod
    def of(cls, a: Mapping[str, object], b: Mapping[str, object]) -> Values:
        """Raises RecordError for a file that cannot be used."""
        pairs, others, settings, alone = {}, list[str](), list[str](), list[str]()
        for name in (*a, *(name for name in b if name not in a)):
            one, other = a.get(name), b.get(name)
            if isinstance(one, TENSORS) and isinstance(other, TENSORS):
                pairs[name] = compared(one, other)
            elif isinstance(one, TENSORS) or isinstance(other, TENSORS):
                alone.append(name)
            elif not (one == other or (one != one and other != other)):
                others.append(f"{name} is {one!r:.60} and {other!r:.60}")
                is_setting = any(isinstance(each, (bool, float, str)) for each in (one, other))
                settings += others[-1:] if is_setting else []
        return cls(pairs, alone, others, settings)

    @property
    def equal(self) -> bool:
        return not self.others and not self.alone and all(pair.equal for pair in self.pairs.values())

    @property
    def agree(self) -> bool:
        """Are they equal, or as near as the statistics of equal tensors are?"""
        return not self.others and not self.alone and all(pair.agrees for pair in self.pairs.values())

    @property
    def unknown(self) -> bool:
        """Do the dumps say nothing of any tensor's values?"""
        return bool(self.pairs) and all(pair.basis == "nothing" for pair in self.pairs.values())

    @property
    def have_values(self) -> bool:
        return all(pair.basis == "values" for pair in self.pairs.values())

    @property
    def incomparable(self) -> list[str]:
        return [name for name, pair in self.pairs.items() if pair.basis in ("shapes", "dtypes")]

    @property
    def gap(self) -> float:
        """The relative RMSE of the tensors that lie farthest apart; of statistics their largest relative difference."""
        return max((pair.relative_gap for pair in self.pairs.values()), default=0.0)


class Found(Struct, frozen=True):
    """The verdict on a pair, and what it is; of one that was judged, the pair, and which tensors have equal values, and
    which inputs differ."""

    verdict: Verdict
    paired: Paired
    pair: Pair | None = None
    equal: Set[str] = frozenset()
    differing: Sequence[str] = ()


class Pair(Struct, frozen=True, dict=True):
    """A call of both sides; own judges the stored outputs of a side, "A" or "B", against float64. named gives, once
    both were judged, the name of what they differ by; "" where it has none.

    is_random: outputs of the API are drawn, or memory that nobody has written to. of_calls: it is a module whose calls
    are compared. in_parts: a side has it in parts, called with other sizes. note says how the pair was found.
    """

    a: Side
    b: Side
    standard: str
    own: Callable[[SideName], Verdict]
    is_random: bool = False
    of_calls: bool = False
    in_parts: bool = False
    note: str = ""
    named: Callable[[], str] = str

    @cached_property
    def inputs(self) -> Values:
        """Raises RecordError."""
        return Values.of(self.a.inputs, self.b.inputs)

    @cached_property
    def outputs(self) -> Values:
        """Raises RecordError."""
        return Values.of(self.a.outputs, self.b.outputs)

    def judged(self) -> Found:
        """Raises RecordError for a file, or a record, that cannot be used."""
        inputs, pairs = self.inputs.pairs, {**self.inputs.pairs, **self.outputs.pairs}
        equal = frozenset(name for name, tensors in pairs.items() if tensors.equal and tensors.basis == "values")
        differing = tuple(name for name, tensors in inputs.items() if not tensors.agrees)
        return replace(self._found(), pair=self, equal=equal, differing=differing)

    def _found(self) -> Found:
        inputs, outputs = self.inputs, self.outputs
        if outputs.incomparable:
            name = outputs.incomparable[0]
            tensors = self.outputs.pairs[name]
            both = " and ".join(f"{side.dtype} {list(side.shape)}" for side in (tensors.a, tensors.b))
            return self._not_compared(f"{name} is {both}")
        if outputs.alone and not outputs.pairs:
            return self._not_compared(f"{outputs.alone[0]} is of one side, or of one part of it, alone")
        if outputs.unknown:
            return self._not_compared("no dump says anything of the values of its outputs")
        if self.standard in CLOSENESS:
            return self._by_closeness(CLOSENESS[self.standard])
        if outputs.equal and outputs.have_values and (inputs.agree or not inputs.have_values):
            return self._made("equal" if inputs.agree else "recovers")
        if outputs.have_values and inputs.have_values:
            sides = self._own()
            if all(verdict.verdict == "skip" for verdict in sides.values()):
                return self._by_growth(sides["A"].reason)
            wrong = [name for name, verdict in sides.items() if verdict.verdict == "error"]
            if self._has_other_arguments and not wrong:
                return self._suspected("arguments", self._other_arguments, sides)
            status: Status = "own" if wrong else self._right
            return self._made(status, sides, wrong, difference=self.named() if status == "rounding" else "")
        return self._by_statistics()

    def _not_compared(self, words: str) -> Found:
        """A side may be wrong all the same."""
        # Has each side the values of all outputs, comparable or not?
        have_files = all(pair.a.has_values and pair.b.has_values for pair in self.outputs.pairs.values())
        if self.inputs.have_values and have_files and self.standard not in CLOSENESS:
            sides = self._own()
            wrong = [name for name, verdict in sides.items() if verdict.verdict == "error"]
            if wrong:
                return self._made("own", sides, wrong, [words])
        reason = f"{self.a.entry}: {words}"
        return Found(Verdict("skip", self.standard, reason, INCOMPARABLE), Paired("incomparable", self.b.entry))

    def _own(self) -> dict[str, Verdict]:
        return {"A": self.own("A"), "B": self.own("B")}

    @property
    def _has_other_arguments(self) -> bool:
        inputs = self.inputs
        # Other values differ, and all tensors agree.
        differ = bool(inputs.others) and not inputs.alone and all(pair.agrees for pair in inputs.pairs.values())
        return (differ or bool(inputs.settings)) and not self.in_parts and not self.outputs.equal

    @property
    def _other_arguments(self) -> str:
        return f"called with other arguments: {'; '.join(self.inputs.others)}"

    @property
    def _right(self) -> Status:
        """What a pair is that is right on both sides, and not equal in all."""
        if self.outputs.equal:
            return "recovers"
        if not self.inputs.agree:
            return "inherited"
        return "random" if self.is_random else "rounding"

    def _by_growth(self, reason: str) -> Found:
        """Nothing can be replayed: what the call adds to the difference of its inputs tells."""
        roundoffs = [tensors.roundoff for tensors in self.outputs.pairs.values()]
        allowed = _SUSPECT * max(self.inputs.gap, *roundoffs, 0.0)
        if self._has_other_arguments:
            return self._suspected("arguments", self._other_arguments)
        if self.outputs.gap <= allowed:
            return self._made(self._right, notes=[f"not replayed: {reason}"])
        if self.of_calls and not self.inputs.equal:
            return self._made("inherited", notes=["the calls that it is made of are compared themselves"])
        words = f"suspect: outputs differ by {self.outputs.gap:.3g} relatively"
        if not self.inputs.pairs:
            return self._suspected("differs", f"{words}; no inputs are known")
        return self._suspected("own", f"{words}, inputs by {self.inputs.gap:.3g}; not replayed: {reason}")

    def _by_statistics(self) -> Found:
        outputs = self.outputs
        if self._has_other_arguments:
            return self._suspected("arguments", self._other_arguments)
        if outputs.agree:
            same: Status = "equal" if outputs.equal else "rounding"
            return self._made(same if self.inputs.agree else "recovers")
        if not self.inputs.agree or self.is_random:
            return self._made(self._right, notes=["not replayed: a dump has statistics alone"])
        far = {name: tensors for name, tensors in outputs.pairs.items() if not tensors.agrees}
        if not far:
            return self._suspected("own", f"suspect: outputs are {'; '.join((*outputs.others, *outputs.alone))}")
        name, worst = max(far.items(), key=lambda item: item[1].gap)
        # A function may enlarge a difference that statistics do not show.
        if not self.inputs.equal and worst.gap <= _SUSPECT:
            return self._made("inherited", notes=["not replayed: a dump has statistics alone"])
        words = f"statistics differ by {worst.gap:.3g} times what roundings explain ({worst.describe()})"
        if not self.inputs.pairs:
            return self._suspected("differs", f"suspect: {name}: {words}; no inputs are known")
        return self._suspected("own", f"suspect: {name}: inputs agree, and {words}")

    def _suspected(self, status: Status, reason: str, sides: Mapping[str, Verdict] = {}) -> Found:
        found = self._made(status, sides)
        return Found(replace(found.verdict, verdict="warning", reason=reason), found.paired)

    def _by_closeness(self, close: Closeness) -> Found:
        rows = []
        unseen = [name for name, tensors in self.outputs.pairs.items() if not close.sees(tensors)]
        if unseen:
            return self._not_compared(f"{unseen[0]}: --probe-standard={self.standard} needs tensors on both sides")
        explained = close.asks_inputs and any(close.refused(tensors) for tensors in self.inputs.pairs.values())
        for name, tensors in self.outputs.pairs.items():
            reason = "" if tensors.equal or explained else close.refused(tensors)
            rows.append(_output(name, tensors, self.standard, close.outcome if reason else "pass", reason))
        reasons = [f"{row.name}: {row.reason}" for row in rows if row.verdict != "pass"]
        reasons += (
            [] if explained else [*self.outputs.others, *(f"{name} is of one side" for name in self.outputs.alone)]
        )
        outcome: Outcome = close.outcome if reasons else "pass"
        differing: Status = "own" if reasons and self.inputs.agree else "inherited" if reasons else "rounding"
        found = self._made("equal" if self.outputs.equal else differing)
        verdict = replace(found.verdict, verdict=outcome, reason="".join(reasons[:1]), outputs=tuple(rows))
        return Found(verdict, found.paired)

    def _made(
        self,
        status: Status,
        sides: Mapping[str, Verdict] = {},
        wrong: Sequence[str] = (),
        notes: Sequence[str] = (),
        difference: str = "",
    ) -> Found:
        one_dtype = all(tensors.a.dtype == tensors.b.dtype for tensors in self.outputs.pairs.values())
        gap = self.outputs.gap
        paired = pair_of(status, self.b.entry, sides, wrong, difference, gap, one_dtype=one_dtype)
        of_wrong = [sides[name] for name in wrong]
        failed = {
            output.name: output for verdict in of_wrong for output in verdict.outputs if output.verdict == "error"
        }
        warned = [name for name, verdict in sides.items() if verdict.verdict == "warning" and not wrong]
        remarks = [f"{name} alone: skip, {each.headline}" for name, each in sides.items() if each.verdict == "skip"]
        if self.outputs.alone:
            remarks.append(f"of one side alone: {', '.join(self.outputs.alone)}")
        if self.inputs.others:
            remarks.append(self._other_arguments)
        verdict = Verdict(
            "error" if wrong else "warning" if warned else "pass",
            self.standard,
            "; ".join(
                [f"own error of {name}: {sides[name].headline}" for name in wrong]
                + [f"warning of {name}: {sides[name].headline}" for name in warned]
            ),
            dtype=next((verdict.dtype for verdict in sides.values() if verdict.dtype), ""),
            outputs=tuple(self._rows(failed)),
            arguments=next((verdict.arguments for verdict in of_wrong), ()),
            notes=(describe_pair(paired), *filter(None, (self.note, *notes)), *remarks),
        )
        return Found(verdict, paired)

    def _rows(self, failed: Mapping[str, OutputVerdict]) -> Iterator[OutputVerdict]:
        """Each output of both sides, with what a wrong side's own verdict says; and outputs of that side alone."""
        for name, tensors in self.outputs.pairs.items():
            own = failed.get(name)
            if own is None:
                yield _output(name, tensors, self.standard, "pass", "")
            else:
                yield replace(own, metrics={**own.metrics, **_metrics(tensors)})
        yield from (output for name, output in failed.items() if name not in self.outputs.pairs)


def _output(name: str, tensors: TensorPair, standard: str, outcome: Outcome, reason: str) -> OutputVerdict:
    return OutputVerdict(name, tensors.a.shape, tensors.a.dtype, outcome, standard, reason, _metrics(tensors))


def _metrics(tensors: TensorPair) -> dict[str, Metric]:
    return {"basis": tensors.basis, **({} if tensors.found is None else tensors.found.metrics())}
