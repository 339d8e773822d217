"""Two implementations of one call, on equal inputs: both are judged against float64, and compared with one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check import Case, CaseRuns, Checked, Checker, Question
from pytest_probe.check.pair_metrics import INCOMPARABLE, Difference, casts_exactly, difference, nearer, noise_of, said
from pytest_probe.check.two_sides import differences, joined
from pytest_probe.model.pairing import Paired, Status
from pytest_probe.model.result import number, plain
from pytest_probe.model.verdict import SEVERITY, Metric, Outcome, OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.tables import classes_of


class TwoCalls(Question):
    """Checks cases by two checkers, which keep both sides, and compares what they find. name: what B is called, where
    its verdict does not say it."""

    def __init__(self, a: Checker, b: Checker, name: str = "") -> None:
        self._runs, self._name = (CaseRuns(a), CaseRuns(b)), name

    def run(self, case: Case, other: Case | None = None) -> Checked:
        """What both sides find, as that of a case. other: the case of B, where it is not the same one."""
        other = other or case
        # Before A runs: the peak of memory is that of one case.
        self._runs[1].release(other)
        a, b = self._runs[0].run(case), self._runs[1].run(other)
        return _Sides(a, b, self._name or b.verdict.replaced or case.id).found(self._runs[0].checker)


class _Sides(Struct, frozen=True):
    a: Checked
    b: Checked
    name: str

    def found(self, checker: Checker) -> Checked:
        """The verdict on both sides, and what they are beside one another."""
        outputs = [_outputs(each) for each in (self.a, self.b)]
        apart, unlike = dict[str, Difference](), list[str]()
        for name in sorted(outputs[0].keys() & outputs[1].keys()):
            one, other = (side[name] for side in outputs)
            castable = one.dtype == other.dtype or casts_exactly(one.dtype.name, other.dtype.name)
            if castable and one.shape == other.shape:
                apart[name] = difference(one, other)
            else:
                unlike.append(name)
        status = self._status(apart, unlike)
        asked = status in ("rounding", "own") and _differ(apart)
        named = differences(checker, self.a, self.b) if asked else {}
        paired = self._paired(status, apart, joined(named))
        metrics = {name: found.metrics() for name, found in apart.items()}
        for name, words in named.items():
            if words and name in metrics:
                metrics[name]["difference"] = words
        verdict = self._verdict(paired, metrics)
        if status == "incomparable" and unlike and verdict.verdict == "pass":
            both = " and ".join(f"{side[unlike[0]].dtype} {list(side[unlike[0]].shape)}" for side in outputs)
            verdict = replace(verdict, verdict="skip", reason=f"{unlike[0]} is {both}", kind=INCOMPARABLE)
        # What is saved, and shown, is the side that is wrong.
        shown = self.b if self._worse() == "B" else self.a
        return replace(shown, case=self.a.case, verdict=verdict, forward=None, compared=None, paired=paired)

    @property
    def _verdicts(self) -> Mapping[str, Verdict]:
        return {"A": self.a.verdict, "B": self.b.verdict}

    @property
    def _wrong(self) -> list[str]:
        return [side for side, verdict in self._verdicts.items() if verdict.verdict == "error"]

    def _worse(self) -> str:
        return max(self._verdicts, key=lambda side: _WEIGHT[self._verdicts[side].verdict])

    def _status(self, apart: Mapping[str, Difference], unlike: list[str]) -> Status:
        if self._wrong:
            return "own"
        if unlike or any(verdict.verdict == "skip" for verdict in self._verdicts.values()):
            return "incomparable"
        if not _differ(apart):
            return "equal"
        return "random" if self._is_random else "rounding"

    @property
    def _is_random(self) -> bool:
        worst = self.a.worst
        name = "" if worst is None else worst.replay.reference.candidate.name
        return not classes_of(name).isdisjoint(("random", "uninitialised"))

    def _paired(self, status: Status, apart: Mapping[str, Difference], named: str) -> Paired:
        noise = {side: noise_of(verdict) for side, verdict in self._verdicts.items()}
        gaps = (each.gap for each in apart.values())
        return Paired(
            status,
            self.name,
            suspect=" and ".join(self._wrong),
            nearer=nearer(noise["A"], noise["B"]),
            noise_a=plain(noise["A"]),
            noise_b=plain(noise["B"]),
            difference=named,
            gap=plain(max(gaps, default=0.0)),
        )

    def _verdict(self, paired: Paired, metrics: Mapping[str, Mapping[str, Metric]]) -> Verdict:
        worse = self._verdicts[self._worse()]
        own = "own error of " if self._wrong else ""
        named = self._wrong or ([] if worse.verdict == "pass" else [self._worse()])
        reasons = [f"{own}{side}: {self._verdicts[side].headline}" for side in named]
        notes = tuple(dict.fromkeys((*self.a.verdict.notes, *self.b.verdict.notes)))
        outputs = tuple(self._rows(metrics))
        return replace(worse, reason="; ".join(reasons), outputs=outputs, notes=(said(paired), *notes))

    def _rows(self, metrics: Mapping[str, Mapping[str, Metric]]) -> Iterator[OutputVerdict]:
        """The worse side's verdict on each output, with how far both lie apart."""
        rows = [{output.name: output for output in verdict.outputs} for verdict in self._verdicts.values()]
        for name in dict.fromkeys((*rows[0], *rows[1])):
            side, row = max(
                ((side, found[name]) for side, found in zip("AB", rows, strict=True) if name in found),
                key=lambda item: (SEVERITY[item[1].verdict], number(item[1].metrics.get("noise_ratio", 0.0))),
            )
            reason = f"{side}: {row.reason}" if row.reason else ""
            yield replace(row, reason=reason, metrics={**row.metrics, **metrics.get(name, {})})


# Which side's verdict is that on both: an error before all, and what cannot be judged before what is right.
_WEIGHT: Mapping[Outcome, int] = {"pass": 0, "warning": 1, "skip": 2, "error": 3}


def _outputs(checked: Checked) -> dict[str, AnyArray]:
    """All outputs that are arrays, or numbers, by the names that verdicts give them."""
    if checked.compared is None:
        return {}
    prefix = "grad." if checked.case.direction == "backward" else ""
    named = ((f"{prefix}{name.removeprefix(prefix)}", value) for name, value in checked.compared.actual.items())
    return {
        name: np.asarray(value)
        for name, value in named
        if isinstance(value, (np.ndarray, bool, float)) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    }


def _differ(apart: Mapping[str, Difference]) -> bool:
    return not all(each.equal for each in apart.values())
