"""An output above its limits, judged again under device modes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_probe.errors import Unsupported
from pytest_probe.frameworks.modes import Behaviour, Mode, with_attention
from pytest_probe.numerics import noise
from pytest_probe.numerics.dtypes import AnyArray, is_floating, round_to, widen
from pytest_probe.standards.exact import correctly_rounded
from pytest_probe.standards.question import Assumption, Kind, Question, Standard
from pytest_probe.standards.verdict import TABLE, OutputVerdict

# Sampled rounding is what the device does, but for where: limits of 8 and 1.
SAMPLED_RMS = 1.0
# Rounding has no direction: a common factor this many times its standard error away from 1 is something else.
SCALED_T = 6.0
IN_USE = 0.25
SMALLEST = 2.0**-126
# What rounds to the smallest normal number may as well be below it.
BORDER = 1.01


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
    if behaviour.flushes:
        yield from _flushed(question, behaviour.variants)
        return
    attends = "attention" in question.facts.name and behaviour.rounds
    for mode in with_attention(behaviour.variants) if attends else behaviour.variants:
        emulated = None if question.otherwise is None else question.otherwise(question, Assumption(mode))
        if emulated is not None:
            yield emulated
        elif mode.bits and mode.attention == "fused":
            return  # no products in this call


def _flushed(question: Question, variants: Sequence[Mode]) -> Iterator[Question]:
    """The question to a device that may flush at any step, or at none: vectors and the rest of a loop differ.

    Of each element that reference counts which is nearest. What is subnormal in the arguments and in the output is
    zero, so that what was copied may stay, and equal zeros may trade places.
    """
    asked = question.otherwise
    found = [asked(question, Assumption(mode)) for mode in variants] if asked is not None else []
    others = [other for other in found if other is not None]
    args, kwargs = [_zeroed(value) for value in question.args], {k: _zeroed(v) for k, v in question.kwargs.items()}
    if question.actual.dtype.kind in "iub":
        yield from (replace(other, args=args, kwargs=kwargs) for other in (*others, replace(question, emulated=True)))
        return
    values = [question.expected, *(other.expected for other in others)]
    small = np.minimum.reduce([np.abs(value) for value in values]) < SMALLEST * BORDER
    actual = np.where(small, _zeroed(question.actual), question.actual)
    # A sum loses terms below the smallest normal number on its way, though neither operands nor results tell. The
    # largest error that passes is that of all terms.
    lost = SMALLEST * min(1.0, question.fan_in / noise.LARGEST) if question.fan_in > 1 else 0.0
    values.append(np.where(small, 0.0, question.expected))
    expected = noise.nearest(actual, values)

    def witness() -> AnyArray | None:
        """The CPU's kernel flushes nothing: it errs from the value that is nearest to its own."""
        own = question.witness() if question.witness is not None else None
        if own is None:
            return None
        return _moved(widen(own), noise.nearest(own, values), expected)

    def runs(kind: Kind, count: int) -> list[AnyArray]:
        made = [_moved(run, each.expected, expected) for each in (question, *others) for run in each.runs(kind, count)]
        return [*made, expected + lost] if kind == "float64" and count else made

    yield replace(
        question, actual=actual, expected=expected, runs=runs, args=args, kwargs=kwargs,
        witness=witness if question.witness is not None else None, emulated=True, lost=SMALLEST,
    )  # fmt: skip


def _moved(values: AnyArray, source: AnyArray, target: AnyArray) -> AnyArray:
    """Values as far from the target as they are from the source; what is not finite stays."""
    with np.errstate(invalid="ignore", over="ignore"):
        moved = target + (values - source)
    return np.asarray(np.where(np.isfinite(values) & np.isfinite(source), moved, values))


def _zeroed(value: Any) -> Any:
    """An array with zeros for subnormal numbers; anything else as it is."""
    if not isinstance(value, np.ndarray) or not is_floating(value.dtype):
        return value
    return np.where(np.abs(widen(value)) < SMALLEST, np.zeros_like(value), value)


def _concerns(question: Question, behaviour: Behaviour) -> bool:
    chosen = question.precision.kind in "iub" and behaviour.flushes
    if question.precision.name not in behaviour.dtypes and not chosen:
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
