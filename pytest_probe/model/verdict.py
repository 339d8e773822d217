"""What a check ends in, and what a pass says of the errors that it would have caught: plain data, ready for JSON, junit
and a process boundary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from pytest_probe.model.measurement import CaseMemory, CaseTime
from pytest_probe.model.pairing import Paired


class Detects(msgspec.Struct, frozen=True, omit_defaults=True):
    """The smallest errors of an output that its judge would have found.

    scale is the relative error of all elements, at least one roundoff of the dtype; None where an error of 100 % is
    not found, for example because the output is all zero. element is the error of one element that is as large as the
    output's RMS, row that of each element of one row along the last dimension, both in ulps of the element, one at
    least; row is None without rows. terms is how many terms are added for one element, None where that is not known or
    is one; without one of them an element of equal terms is 1 / terms too small: term says whether that would be found
    in all elements.
    """

    scale: float | None
    element: float
    row: float | None = None
    terms: int | None = None
    term: bool | None = None

    @property
    def description(self) -> str:
        """The errors as a report tells them."""
        scale = "no scale error" if self.scale is None else f"a scale error of {self.scale:.2g}"
        parts = [scale, f"one element off by {_ulps(self.element)}"]
        if self.row is not None:
            parts.append(f"a row off by {_ulps(self.row)}")
        if self.terms is not None:
            parts.append(f"one of {self.terms:,} terms missing" if self.term else f"no missing term of {self.terms:,}")
        return ", ".join(parts)


def _ulps(number: float) -> str:
    return "1 ulp" if number == 1 else f"{number:.2g} ulps" if number < 100 else f"{number:,.0f} ulps"


# The question how sensitive a case is: does it prove something, or little or nothing?
SENSITIVITY, STRONG, WEAK = "sensitivity", "strong", "weak"


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a case answers to a question that the run asks besides its verdict. Tables add it up by API.

    outcome is the answer in a word or two, message what else it says. shares has by name how many of how many are as
    they should be, as elements with equal bits; totals has numbers that are added up, most those of which the largest
    counts. "seconds" of totals are no part of the case's duration. pair is what a call of two sides is.
    """

    question: str
    outcome: str
    message: str = ""
    shares: Mapping[str, tuple[int, int]] = {}
    totals: Mapping[str, int | float] = {}
    most: Mapping[str, float] = {}
    pair: Paired | None = None


if TYPE_CHECKING:
    from pytest_probe.numerics.error_plots import Histogram

Outcome: TypeAlias = Literal["pass", "pass (self)", "warning", "error", "skip"]
# What no reference judged, and the device alone was asked.
PASS_SELF: Outcome = "pass (self)"
Metric: TypeAlias = "float | int | str | bool"

# The metric that names the rule, where a verdict is a warning for no other reason than an API's table.
TABLE_METRIC = "table"
# The metric that names the kind of an output that is not finite.
OVERFLOW = "overflow"
# The metric that says what else than noise an output was granted, in ulps and as a share of it.
GRANTED = "granted"
# How the reason of a warning begins where nobody could judge; the summary counts such cases.
UNDECIDED = "undecided: "
# How the note on a case begins whose device computed another dtype than the case's; the summary counts such cases.
EMULATED = "emulated: "
# And of one whose runs differ.
NON_DETERMINISTIC = "non-deterministic"
# How the name of an output begins that is no output, but says whether calls of the API are related as they should be.
RELATION = "relation."
# The kind of an error that is none of the numbers: the case takes longer than its limit.
SLOWER = "slower"
# The worst output decides. A skip says nothing, so whatever was judged outranks it.
SEVERITY: Mapping[Outcome, int] = {"skip": 0, "pass": 1, PASS_SELF: 1, "warning": 2, "error": 3}


class Element(Struct, frozen=True):
    """One element of an output: where it is, what the device gave, what the reference says.

    ulp is the distance in units of the output's dtype, ratio the noise ratio. Complex numbers are given as text.
    """

    index: tuple[int, ...]
    actual: float | str
    expected: float | str
    ulp: float
    ratio: float


class Diagnosis(Struct, frozen=True, omit_defaults=True):
    """What is wrong with an output that failed.

    wrong of `size` elements are; not_finite counts "NaN" and "inf" on the device's side and on the reference's. errors
    is the distribution of distances in ULP (of integers, of differences), in one line. where is the smallest region
    that holds nearly all of them ("rows 12:16 of dim 0"), cause what explains them ("all times 1.001"), "" where
    nothing does, family the kind of that cause ("factor"). quick: only causes were tried that need no run of the
    reference; by_runs: such runs found the cause.
    """

    wrong: int
    size: int
    not_finite: Mapping[str, tuple[int, int]]
    errors: str
    where: str
    cause: str
    family: str
    quick: bool = False
    by_runs: bool = False


class Basis(Struct, frozen=True):
    """What a standard measured, and of which comparison. All are equal: verdicts differ by what they say."""

    comparison: object
    measured: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basis)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Basis()"


class OutputVerdict(Struct, frozen=True):
    """The verdict on one output: a return value ("output.0"), a changed argument ("input.0") or a gradient
    ("grad.input.1", "grad.kwargs.weight").

    reason names what failed, with the number and its limit; worst holds the five worst elements of an output that
    failed or was warned about. measures are the field's metrics, as msprobe's files have them, where a run writes them;
    baseline is what a baseline keeps, where a run asks for one; noise_ratios are those of all elements, where a run
    makes plots. basis is what a standard measured for an error and its diagnosis need not measure again; nothing else
    sees it. detects are the smallest errors that would have been found, of floats that passed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    verdict: Outcome
    standard: str
    reason: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    worst: tuple[Element, ...] = ()
    measures: Mapping[str, Metric] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    baseline: Mapping[str, Metric] = field(default_factory=dict)
    noise_ratios: Histogram | None = None
    basis: Basis | None = None
    detects: Detects | None = None

    @property
    def summary(self) -> str:
        """The reason with where and why, in one line."""
        found = self.diagnosis
        where = f"wrong: {found.where}" if found is not None and found.where and found.size > 1 else ""
        parts = (self.reason, where, found.cause if found is not None else "")
        return "; ".join(filter(None, parts))

    @property
    def limit(self) -> float:
        """Of noise ratios; NaN where another rule decides."""
        return float(self.metrics.get("noise_ratio_limit", math.nan))

    @property
    def beyond(self) -> tuple[Element, ...]:
        """The worst elements that the limit does not allow."""
        return tuple(each for each in self.worst if not each.ratio <= self.limit)

    @property
    def off_by(self) -> str:
        """How far the worst element is off, and how far it may be, in the units of its values; "" where a ratio is not
        known."""
        limit, worst = self.limit, next(iter(self.beyond), None)
        if worst is None or isinstance(worst.actual, str) or isinstance(worst.expected, str):
            return ""
        if not limit < worst.ratio < math.inf or not worst.ulp:
            return ""
        off = abs(worst.actual - worst.expected)
        # Half an ulp is granted, and the ratio is that of the rest.
        half = off / worst.ulp / 2
        return f"off by {off:.2g}, allowed {limit / worst.ratio * (off - half) + half:.2g}" if off < math.inf else ""


class ArgumentRow(Struct, frozen=True):
    """One argument as the failing item shows it: a tensor by shape, dtype and range, anything else by its value."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    value: str


class Verdict(Struct, frozen=True):
    """The verdict on one case.

    kind groups skips in reports ("no kernel on the device"); reason is the whole sentence. dtype is what the case ran
    in ("float32", "bfloat16+float32" where mixed, "" without floats). replaced names the function that a project
    registered in the call's place and that was judged, "" where it was the framework's. time and memory are there where
    a run measures them, answers where it asks more of the case; parts are seconds by what they were spent on.
    """

    verdict: Outcome
    standard: str
    reason: str = ""
    kind: str = ""
    dtype: str = ""
    outputs: tuple[OutputVerdict, ...] = ()
    arguments: tuple[ArgumentRow, ...] = ()
    notes: tuple[str, ...] = ()
    replaced: str = ""
    time: CaseTime | None = None
    memory: CaseMemory | None = None
    answers: tuple[Answer, ...] = ()
    parts: Mapping[str, float] = {}

    @property
    def headline(self) -> str:
        """Why, in one line: the likely cause, where one was found, and then the numbers."""
        failed = [output for output in self.outputs if output.verdict == self.verdict]
        found = next((output for output in failed if output.diagnosis is not None and output.diagnosis.cause), None)
        if self.kind or found is None or found.diagnosis is None:
            named = (f"{output.name}: {output.reason}" for output in failed)
            lines = (self.reason or next(named, "")).splitlines()
            return lines[0] if lines else self.verdict
        return f"{found.diagnosis.cause}; {found.name}: {found.reason}".splitlines()[0]

    @property
    def of_numbers(self) -> Outcome:
        """The outcome without what was found on relations between calls."""
        own = tuple(output for output in self.outputs if not output.name.startswith(RELATION))
        return self.verdict if len(own) == len(self.outputs) else conclusion(own)[0]

    @property
    def relations(self) -> dict[str, Outcome]:
        """What was found on each relation that could be asked, by its name."""
        found = ((output.name, output.verdict) for output in self.outputs if output.name.startswith(RELATION))
        return {name.removeprefix(RELATION): outcome for name, outcome in found if outcome != "skip"}

    def __repr__(self) -> str:
        from pytest_probe.model.card import lines

        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        from pytest_probe.model.card import card

        return card(self)

    def fails(self, strict: bool) -> bool:
        """Does it fail its item? strict: a warning does."""
        return self.verdict == "error" or (self.verdict == "warning" and strict)


def conclusion(outputs: tuple[OutputVerdict, ...]) -> tuple[Outcome, str]:
    """The outcome of a case, and its reason: those of its worst output, by name."""
    # The output that decides: the first of the most severe.
    worst = max(outputs, key=lambda output: SEVERITY[output.verdict], default=None)
    if worst is None:
        return "pass", ""
    return worst.verdict, f"{worst.name}: {worst.summary}" if worst.summary else ""
