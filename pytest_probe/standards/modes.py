"""An output above its limits, judged again under device modes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.modes import Behaviour, Mode, with_attention
from pytest_probe.numerics import noise
from pytest_probe.numerics.dtypes import AnyArray, round_to
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.question import Assumption, Kind, Question, Standard
from pytest_probe.standards.verdict import TABLE, OutputVerdict

# Sampled rounding is what the device does, but for where: limits of 8 and 1.
SAMPLED_RMS = 1.0
# Rounding has no direction: a common factor this many times its standard error away from 1 is something else.
SCALED_T = 6.0
IN_USE = 0.25
SMALLEST = 2.0**-126


def under_modes(
    standard: Standard, question: Question, verdict: OutputVerdict, allowed: Sequence[Behaviour]
) -> OutputVerdict | None:
    """The verdict where an allowed mode explains the output: pass, with the mode's name as a metric.

    Raises Unsupported for gradients of factors under a mode that rounds operands: a device knows factors less precisely
    than any tie between such operands, so that its own go another way than the emulated ones.
    """
    if TABLE in verdict.metrics:
        return None  # noise is content without a mode
    for behaviour in allowed:
        for emulated in emulations(question, behaviour):
            found = judged(standard, emulated)
            if found is not None and found.verdict == "pass":
                reason = f"as {behaviour.name} ({behaviour.words}): {numbers(found)} instead of {numbers(verdict)}"
                return replace(found, reason=reason, metrics={**found.metrics, "mode": behaviour.name})
    of_factors = question.direction == "backward" and "factorisation" in question.facts.classes
    if of_factors and any(behaviour.rounds and _concerns(question, behaviour) for behaviour in allowed):
        raise Unsupported(f"{question.name}: {verdict.reason}, under a mode that rounds factors", "rounded factors")
    return None


def judged(standard: Standard, question: Question) -> OutputVerdict | None:
    """The verdict; None where the standard has none for such a reference."""
    with contextlib.suppress(Unsupported):
        return standard.judge(question)
    return None


def emulations(question: Question, behaviour: Behaviour) -> Iterator[Question]:
    """The question as each variant of a mode answers it; none where the mode changes nothing in this call."""
    if not _concerns(question, behaviour):
        return
    if behaviour.sampled:
        sampled = _sampled(question, behaviour.variants)
        if sampled is not None:
            yield sampled
        return
    attends = "attention" in question.facts.name and behaviour.rounds
    for mode in with_attention(behaviour.variants) if attends else behaviour.variants:
        emulated = None if question.otherwise is None else question.otherwise(question, Assumption(mode))
        if mode.flush and question.fan_in > 1:
            yield _with_lost_terms(emulated or question)
        elif emulated is not None:
            yield emulated
        elif mode.bits and mode.attention == "fused":
            return  # no products in this call


def _with_lost_terms(question: Question) -> Question:
    """The question where sums are flushed on their way: terms and partial sums below the smallest normal number are
    lost, though neither operands nor results tell. The largest error that passes is that of all terms."""
    lost = SMALLEST * min(1.0, question.fan_in / noise.LARGEST)

    def runs(kind: Kind, count: int) -> list[AnyArray]:
        found = question.runs(kind, count)
        return [*found, question.expected + lost] if kind == "float64" and count else found

    return replace(question, runs=runs, emulated=True)


def _concerns(question: Question, behaviour: Behaviour) -> bool:
    if question.precision.name not in behaviour.dtypes:
        return False
    return behaviour.sampled or not (question.narrow and behaviour.rounds)


def _sampled(question: Question, variants: Sequence[Mode]) -> Question | None:
    """The question with the mode's own rounding among its runs, and limits as close as sampled rounding deserves."""
    if question.otherwise is None:
        return None
    found = [question.otherwise(question, Assumption(mode, sample=index)) for index, mode in enumerate(variants)]
    samples = [other.expected for other in found if other is not None]
    if not samples or is_scaled(question) or not _in_use(question, samples):
        return None

    def runs(kind: Kind, count: int) -> list[AnyArray]:
        plain = question.runs(kind, count)
        return plain + samples[:count] if kind == "float64" else plain

    close = SAMPLED_RMS / (noise.ELEMENTWISE_RMS if question.facts.elementwise else noise.RMS)
    return replace(question, runs=runs, factor=question.factor * close, witness=None, emulated=True)


def _in_use(question: Question, samples: Sequence[AnyArray]) -> bool:
    """Does the output differ from the correctly rounded reference about as often as the mode makes it? Where most of
    it does not, the mode was not in use, and does not explain the rest."""
    wanted = correctly_rounded(question.expected, question.actual.dtype)
    usual = np.mean([np.mean(round_to(sample, question.actual.dtype) != wanted) for sample in samples])
    return bool(np.mean(question.actual != wanted) >= IN_USE * usual)


def is_scaled(question: Question) -> bool:
    """Is the output the reference times a number that is not 1, beyond what chance gives?"""
    factor, error = fitted_factor(question)
    return abs(factor - 1) > SCALED_T * error


def fitted_factor(question: Question) -> tuple[float, float]:
    """The number that the reference is to be multiplied by to come nearest to the output, and its standard error."""
    actual, expected = question.actual.astype(question.expected.dtype), question.expected
    usable = np.isfinite(actual) & np.isfinite(expected) & (expected != 0)
    if expected.dtype.kind != "f" or np.count_nonzero(usable) < 2:
        return 1.0, np.inf
    largest = np.abs(expected[usable]).max()
    unit, given = expected[usable] / largest, actual[usable] / largest
    square = np.dot(unit, unit)
    factor = float(np.dot(unit, given) / square)
    rest = given - factor * unit
    return factor, float(np.sqrt(np.dot(rest, rest) / square / (unit.size - 1)))


def closer(question: Question, emulated: Question, factor: float = 4.0) -> bool:
    """Is the output nearer to another reference, by that factor in the middle one of its elements?"""
    return _distance(emulated) * factor < _distance(question)


def _distance(question: Question) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(question.actual.astype(question.expected.dtype) - question.expected)
    finite = distance[np.isfinite(distance) & (question.expected != 0)]
    if not finite.size:
        return 0.0
    return float(np.median(finite)) or float(np.mean(finite))


def numbers(verdict: OutputVerdict) -> str:
    """Largest and RMS noise ratio of a verdict, "17,600 / 2,130"; the share that differs where it has none."""
    ratios = [verdict.metrics.get(name) for name in ("noise_ratio", "noise_rms")]
    if None in ratios:
        return f"{100 * float(verdict.metrics.get('mismatch', 0.0)):.3g} % different"
    return " / ".join(short(float(ratio)) for ratio in ratios if ratio is not None)


def short(value: float) -> str:
    """A number with three digits that mean something, "17,600"."""
    return f"{float(f'{value:.3g}'):,g}"
