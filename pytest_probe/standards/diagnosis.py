"""What would explain an error: causes that are tried one after the other on an output that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from pytest_probe.frameworks.modes import ACCUMULATIONS, MODES, Behaviour
from pytest_probe.numerics.dtypes import BoolArray, float_format
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards import noise
from pytest_probe.standards.exact import alike, correctly_rounded
from pytest_probe.standards.modes import closer, emulations, fitted_factor, judged, numbers
from pytest_probe.standards.question import Assumption, Question, Standard
from pytest_probe.standards.verdict import OutputVerdict

# Where the argument stands, and its keyword.
EPS: Mapping[str, tuple[int, str]] = {
    "layer_norm": (4, "eps"), "group_norm": (4, "eps"), "batch_norm": (7, "eps"), "instance_norm": (7, "eps"),
    "rms_norm": (3, "eps"), "normalize": (3, "eps"), "cosine_similarity": (3, "eps"), "npu_rms_norm": (2, "epsilon"),
    "native_layer_norm": (4, "eps"), "native_batch_norm": (7, "eps"), "native_group_norm": (7, "eps"),
}  # fmt: skip
EPS_VALUES = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12, 0.0)
APPROXIMATE: Mapping[str, tuple[int, str]] = {"gelu": (1, "approximate")}
FEW = 0.05
COVERED = 0.5
WIDEST_EDGE = 3


@dataclass(frozen=True, slots=True)
class Trouble:
    """An output that failed, and the standard that says so."""

    standard: Standard
    question: Question
    verdict: OutputVerdict


class Cause(Protocol):
    def explain(self, trouble: Trouble) -> str | None:
        """The cause in words, where it explains the whole error."""


def diagnose(standard: Standard, question: Question, verdict: OutputVerdict) -> str:
    """The likeliest cause of an error, "" where none of the known ones fits, or where the sign of zero is all of it."""
    if verdict.standard not in ("noise", "ties", "exact") or question.actual.dtype.kind in "iub":
        return ""
    if verdict.metrics.get("mismatch") == 0:
        return ""
    trouble = Trouble(standard, question, verdict)
    return next((words for cause in CAUSES if (words := cause.explain(trouble))), "")


@dataclass(frozen=True, slots=True)
class DeviceMode:
    """The output is what a device mode gives, or that but for a few elements."""

    behaviours: Sequence[Behaviour]

    def explain(self, trouble: Trouble) -> str | None:
        nearly = None
        for behaviour in self.behaviours:
            for emulated in emulations(trouble.question, behaviour):
                if not self._near(trouble.question, emulated, behaviour):
                    continue
                found = judged(trouble.standard, emulated)
                if found is not None and found.verdict == "pass":
                    return self._words(behaviour, found, trouble.verdict)
                where = confined(emulated) if behaviour.rounds and not behaviour.sampled else None
                nearly = nearly or (where and f"behaves as {behaviour.words}, but for {where}")
        return nearly

    def _near(self, question: Question, emulated: Question, behaviour: Behaviour) -> bool:
        if behaviour.sampled:
            return _of_the_size(question, emulated)
        return not behaviour.rounds or closer(question, emulated)

    def _words(self, behaviour: Behaviour, found: OutputVerdict, verdict: OutputVerdict) -> str:
        like = "errs as much as by" if behaviour.sampled else "behaves as"
        words = f"{like} {behaviour.words}: {numbers(found)} instead of {numbers(verdict)}"
        return f"{words} (--probe-allow={behaviour.name} accepts it)" if behaviour.name else words


def _of_the_size(question: Question, emulated: Question) -> bool:
    """Is the error as large as the sampled rounding, neither hidden in it nor above?"""
    sizes = [np.abs(run - question.expected) for run in emulated.runs("float64", 4)]
    size = float(np.median(np.maximum.reduce(sizes)))
    with np.errstate(invalid="ignore", over="ignore"):
        error = float(np.median(np.abs(question.actual.astype(question.expected.dtype) - question.expected)))
    return size / 2 < error < size * 2


@dataclass(frozen=True, slots=True)
class OtherArgument:
    """The output is what another value of one argument gives."""

    places: Mapping[str, tuple[int, str]]
    values: Sequence[Any]

    def explain(self, trouble: Trouble) -> str | None:
        question = trouble.question
        place = self.places.get(question.facts.name)
        if place is None or question.otherwise is None:
            return None
        for value in self.values:
            other = question.otherwise(question, Assumption(argument=(*place, value)))
            found = judged(trouble.standard, other) if other is not None and closer(question, other) else None
            if found is not None and found.verdict == "pass":
                given = question.argument(*place)
                instead = "the default" if given is None else repr(given) if isinstance(given, str) else f"{given:g}"
                said = repr(value) if isinstance(value, str) else f"{value:g}"
                change = f"behaves as {place[1]} = {said} instead of {instead}"
                return f"{change}: {numbers(found)} instead of {numbers(trouble.verdict)}"
        return None


class Scale:
    """The output is the reference times a number."""

    def explain(self, trouble: Trouble) -> str | None:
        question = trouble.question
        for factor in _factors(question):
            found = judged(trouble.standard, _scaled(question, factor))
            if found is not None and found.verdict == "pass":
                times = 1 + float(f"{factor - 1:.2g}")
                return f"all times {times:.12g}: {numbers(found)} instead of {numbers(trouble.verdict)}"
        return None


def _scaled(question: Question, factor: float) -> Question:
    return replace(
        question,
        expected=question.expected * factor,
        runs=lambda kind, count: [run * factor for run in question.runs(kind, count)],
        witness=None,
    )


def _factors(question: Question) -> Iterator[float]:
    """By least squares, and the number whose multiples round to the output, which says more of narrow dtypes."""
    fitted, error = fitted_factor(question)
    if abs(fitted - 1) <= max(error, question.roundoff):
        return
    yield fitted
    actual, expected = question.actual.astype(np.float64), question.expected
    usable = np.isfinite(actual) & (np.abs(expected) > 2.0 ** float_format(question.precision).min_exponent)
    if not usable.any():
        return
    half = ulp(actual[usable], question.precision) / 2
    ends = [(np.abs(actual[usable]) + side * half) / np.abs(expected[usable]) for side in (-1, 1)]
    yield float((ends[0].max() + ends[1].min()) / 2)


class Confined:
    """The error is in one place, and the rest of the output is right."""

    def explain(self, trouble: Trouble) -> str | None:
        where = confined(trouble.question, exact=trouble.verdict.standard == "exact")
        return where and f"wrong in {where}"


def confined(question: Question, exact: bool = False) -> str | None:
    """Where an output is wrong, in words, if the rest of it is right and much the larger part."""
    bad = _wrong_exactly(question) if exact else _wrong_by_noise(question)
    if bad is None or not bad.any():
        return None
    places = (_tail, _few) if np.count_nonzero(bad) == 1 else (_tail, _slab, _edge, _few)
    return next((words for place in places if (words := place(bad, question))), None)


def _wrong_exactly(question: Question) -> BoolArray:
    return ~alike(question.actual, correctly_rounded(question.expected, question.actual.dtype))


def _wrong_by_noise(question: Question) -> BoolArray | None:
    finding = noise.decide(question)
    bad: BoolArray = finding.noise.ratios > finding.limits.largest
    rest = finding.noise.ratios[~bad]
    content = not rest.size or float(np.sqrt(np.mean(rest**2))) <= finding.limits.rms
    return bad if content else None


def _tail(bad: BoolArray, question: Question) -> str | None:
    start = int(np.flatnonzero(bad)[0])
    actual, expected = question.actual.reshape(-1)[start:], question.expected.reshape(-1)[start:]
    if actual.size < 2 or start == 0 or np.count_nonzero(expected) < 2:
        return None
    for words, there in (("zeros", actual == 0), ("NaN", actual != actual)):
        if there.all():
            return f"the tail: {words} from flat index {start:,} on ({actual.size:,} of {bad.size:,} elements)"
    return None


def _slab(bad: BoolArray, question: Question) -> str | None:
    """All within one index of one axis, or a few at its end."""
    for axis in range(bad.ndim if bad.ndim > 1 else 0):
        extent = bad.shape[axis]
        found = np.flatnonzero(bad.any(axis=tuple(other for other in range(bad.ndim) if other != axis)))
        first, last = int(found[0]), int(found[-1])
        width = last - first + 1
        full = np.count_nonzero(bad) * extent >= COVERED * bad.size * width
        if full and (width == 1 < extent or (last == extent - 1 and width * 4 <= extent)):
            return _slab_words(bad.ndim, axis, first, last, extent)
    return None


def _slab_words(rank: int, axis: int, first: int, last: int, extent: int) -> str:
    kind = "row" if axis == 0 else "column" if axis == rank - 1 else "slice"
    if last > first:
        return f"the last {last - first + 1} {kind}s only (from index {first} of axis {axis} on)"
    name = {0: "the first ", extent - 1: "the last "}.get(first, "one ")
    return f"{name}{kind} only (index {first} of axis {axis})"


def _edge(bad: BoolArray, question: Question) -> str | None:
    """All at the edges of the dimensions behind batch and channel."""
    spatial = bad.shape[2:]
    if not spatial or min(spatial) < 4:
        return None
    distance = np.full(spatial, max(spatial))
    for axis, extent in enumerate(spatial):
        ends = np.minimum(np.arange(extent), np.arange(extent)[::-1])
        distance = np.minimum(distance, ends.reshape([-1 if axis == other else 1 for other in range(len(spatial))]))
    width = int(np.broadcast_to(distance, bad.shape)[bad].max()) + 1
    edge = int(np.count_nonzero(distance < width)) * (bad.size // distance.size)
    if width > min(WIDEST_EDGE, min(spatial) // 2 - 1) or np.count_nonzero(bad) < COVERED * edge:
        return None
    axes = "dimension" if len(spatial) == 1 else f"{len(spatial)} dimensions"
    return f"the edges only (the outer {width} of the last {axes})"


def _few(bad: BoolArray, question: Question) -> str | None:
    count = int(np.count_nonzero(bad))
    if count > max(1.0, FEW * bad.size) or count == bad.size:
        return None
    first = ", ".join(str(int(index)) for index in np.argwhere(bad)[0])
    return f"{count:,} of {bad.size:,} elements{',' if count == 1 else ', first'} at [{first}]"


CAUSES: Sequence[Cause] = (
    DeviceMode([MODES["ftz"]]),
    Confined(),
    DeviceMode([MODES[name] for name in ("tf32", "hf32", "bf16x3", "bf16")]),
    OtherArgument(EPS, EPS_VALUES),
    OtherArgument(APPROXIMATE, ("none", "tanh")),
    Scale(),
    DeviceMode([MODES["reduced-reduction"], *ACCUMULATIONS]),
)
