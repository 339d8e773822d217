"""The noise standard: is the error what the precision explains? The rule is in docs/standards.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pytest_probe.numerics import metrics, noise
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, round_to, widen
from pytest_probe.numerics.noise import Bias, Limits, Noise, Spread
from pytest_probe.standards import findings
from pytest_probe.standards.exact import Exact, elements
from pytest_probe.standards.findings import AMONG_THEMSELVES, BETWEEN_STEPS, NARROW, STAGES, Finding
from pytest_probe.standards.leaps import leaps
from pytest_probe.standards.question import Question
from pytest_probe.standards.verdict import Metric, Outcome, OutputVerdict

WITNESS_LARGEST, WITNESS_RMS, WITNESS_HOPELESS = 2.0, 1.5, 1000.0
# Another device's steps need not be torch's, but it rounds between them in more than one element.
OTHERS = Limits(5.0, 1.0)
OTHERS_LEAST, OTHERS_SHARE = 2.0, 40.0
STEPS_BIAS = 0.5


class NoiseStandard:
    """Floats by the noise rule; integers, booleans and empty outputs exact."""

    name = "noise"

    def judge(self, question: Question) -> OutputVerdict:
        if question.actual.dtype.kind in "iub" or not question.actual.size:
            return Exact().judge(question)
        finding = decide(question)
        if finding.leaping:
            return _verdict(question, finding, *_leapt(question, finding))
        if not finding.content:
            return self._above(question, finding)
        shifted = _shift(question, finding)
        if shifted is None:
            return _verdict(question, finding, "pass")
        stepped = _unshifted(question) if question.narrow and finding.source != BETWEEN_STEPS else None
        if stepped is None:
            return _verdict(question, finding, "error", shifted)
        if question.on_cpu:
            return _verdict(question, stepped, "pass")
        return _verdict(question, finding, "warning", f"rounds between its steps: {shifted}")

    def _above(self, question: Question, finding: Finding) -> OutputVerdict:
        """Above the limits: what else may explain it, in the order of the rule."""
        if question.on_cpu:
            return _verdict(question, finding, "error", finding.reason)
        outcome = _witnessed(question, finding)
        if outcome is not None:
            return _verdict(question, finding, *outcome)
        if question.narrow and self._between(question):
            return _verdict(question, finding, "warning", f"rounds between its steps: {finding.reason}")
        return _verdict(question, finding, "error", finding.reason)

    def _between(self, question: Question) -> bool:
        """Is it what 16-bit steps give: those of the framework's decompositions, or those of the CPU's kernels?"""
        narrow = findings.pooled(question, findings.scatter(question, question.runs("narrow", 2)))
        if narrow is not None and _by_other_steps(question, findings.noise_of(question, narrow)):
            return True
        sampled = question.runs("coarse", STAGES[-1])
        if not sampled:
            return False
        moved = replace(question, expected=findings.nearest(question, [question.expected, *sampled]))
        runs = question.runs("float64", STAGES[-1]) + question.runs("fine", STAGES[-1])
        spread = findings.pooled(question, findings.scatter(question, runs))
        return findings.noise_of(moved, spread).within(findings.limits_of(question))


def decide(question: Question) -> Finding:
    """The first content finding, else the first that leaping elements made content, else the last with the limits of
    the rule."""
    found: list[Finding] = []
    leapt: list[Finding] = []
    for finding in findings.in_turn(question):
        if finding.content:
            beside = _beside(question, finding)
            if beside is None:
                return finding
            leapt.append(beside)
        found.append(finding)
    if leapt:
        return leapt[0]
    return next(finding for finding in reversed(found) if finding.source != AMONG_THEMSELVES)


def _beside(question: Question, finding: Finding) -> Finding | None:
    """The finding where elements that leap grant the others nothing; None where that leaves it content."""
    spread, floor = finding.spread, findings.floor_of(question)
    if spread is None or not floor:
        return None
    moved = replace(question, expected=finding.center)
    if findings.noise_of(moved, spread, floor=0.0).within(finding.limits):
        return None
    leaping = leaps(question, spread)
    if leaping is None or not leaping.any():
        return None
    calm = findings.noise_of(moved, Spread(np.where(leaping, 0.0, spread.size), spread.torn))
    ratios = np.where(leaping, finding.noise.ratios, calm.ratios)
    found = noise.summary(ratios, question.expected, finding.noise.undecided)
    count = int(np.count_nonzero(leaping))
    return None if found.within(finding.limits) else replace(finding, noise=found, leaping=count)


def _leapt(question: Question, finding: Finding) -> tuple[Outcome, str]:
    """A device that chooses otherwise errs in fewer elements than leap, since not each does so in a few runs; one that
    rounds between 16-bit steps may err in all."""
    wrong = int(np.count_nonzero(finding.noise.ratios > finding.limits.largest))
    leap = f"{finding.leaping:,} of {finding.noise.ratios.size:,} elements leap as inputs move by a roundoff"
    if wrong > finding.leaping and (question.on_cpu or not question.narrow):
        return "error", f"{leap}; beside them {finding.reason}, {wrong:,} above it"
    return "warning", f"undecided: {leap}; beside them {finding.reason}"


def _unshifted(question: Question) -> Finding | None:
    """What explains a bias: a constant that was rounded to 16 bits between two steps moves all elements alike."""
    if findings.rounds_inside(question) or not question.runs("coarse", STAGES[-1]):
        return None
    runs = question.runs("float64", STAGES[-1]) + question.runs("fine", STAGES[-1])
    stepped = findings.between_steps(question, runs, findings.limits_of(question))
    return stepped if stepped.content and _shift(question, stepped) is None else None


def _by_other_steps(question: Question, measured: Noise) -> bool:
    """Is it of the size that rounding between steps has, torch's own or others? Element by element neighbours show
    that size, and the limits are close."""
    limits = NARROW
    if question.facts.elementwise:
        limits = Limits(OTHERS.largest, OTHERS.rms * (1 + 1 / max(measured.count, 1) ** 0.5))
    largest = min(limits.largest, max(OTHERS_LEAST, OTHERS_SHARE * findings.others(measured)))
    return measured.within(Limits(largest, limits.rms))


def _witnessed(question: Question, finding: Finding) -> tuple[Outcome, str] | None:
    """What the framework's own CPU kernel in the case's dtype says, where it is another device than the tested one."""
    witness = question.witness() if question.witness is not None else None
    if witness is None:
        return None
    lost = _overflown(question, witness)
    alike = lost & np.isinf(widen(question.actual))
    seen = _measure_instead(question, finding, np.where(lost, question.expected, widen(witness)))
    if not np.isfinite(seen.largest):
        return "warning", "undecided: the CPU's own kernel gives NaN"
    if seen.largest > WITNESS_HOPELESS and question.precision.name in ("float32", "complex64"):
        return "warning", f"undecided: the CPU's own kernel has noise ratio {seen.largest:,.4g}, no digits are left"
    ours = _measure_instead(question, finding, np.where(alike, question.expected, widen(question.actual)))
    if ours.within(finding.limits):
        return "pass", "as-cpu: the CPU's own kernel overflows as well"
    if ours.largest <= WITNESS_LARGEST * seen.largest and ours.rms <= WITNESS_RMS * seen.rms:
        return "pass", f"as-cpu: the CPU's own kernel errs as much ({seen.largest:,.4g})"
    return None


def _overflown(question: Question, witness: AnyArray) -> BoolArray:
    """Where the witness overflows and the reference does not: it excuses an overflow there, and no number."""
    return np.asarray(np.isinf(widen(witness)) & np.isfinite(question.expected))


def _measure_instead(question: Question, finding: Finding, values: AnyArray) -> Noise:
    """The noise of other values in the place of the output."""
    return findings.noise_of(replace(question, actual=values), finding.spread)


def _is_narrow(question: Question) -> bool:
    return float_format(question.precision).precision < 24


def _shift(question: Question, finding: Finding) -> str | None:
    """The words for a bias, for outputs narrower than float32."""
    if not _is_narrow(question) or finding.noise.largest == 0.0:
        return None
    # Near a tie either neighbour is right: whole classes of quotients lie there.
    rounded = np.where(finding.noise.ratios <= 1, question.actual, round_to(finding.center, question.precision))
    limit = noise.ELEMENTWISE_RMS if question.facts.elementwise else noise.RMS
    if finding.source == BETWEEN_STEPS:
        rounded, limit = round_to(finding.center, question.precision), STEPS_BIAS
    for allowed in _scales_of_bias(question, finding):
        found: tuple[Bias, ...] = noise.biases(question.actual, rounded, question.expected, allowed)
        for shift, words in zip(found, ("shifted", "scaled"), strict=False):
            if shift.beyond(limit):
                return f"{words} on average by {shift.effect:,.4g} noise scales (limit {limit:g}), t = {shift.t:,.4g}"
    return None


def _scales_of_bias(question: Question, finding: Finding) -> Iterator[AnyArray]:
    """Half of float16's smallest subnormal is nothing that rounding shifts an average by: where another scale comes of
    it, float32's counts as well."""
    scales: list[AnyArray] = []
    for dtype in (question.precision, np.dtype(np.float32)):
        with np.errstate(invalid="ignore", over="ignore"):
            scale = noise.scale(
                question.expected,
                finding.spread,
                dtype=dtype,
                roundoff=question.roundoff,
                floor=findings.floor_of(question),
            )
        if not any(np.array_equal(scale, known, equal_nan=True) for known in scales):
            scales.append(scale)
            yield scale


def _verdict(question: Question, finding: Finding, outcome: Outcome, reason: str = "") -> OutputVerdict:
    measured: dict[str, Metric] = dict(metrics.describe(question.actual, question.expected))
    measured |= {
        "noise_ratio": finding.noise.largest,
        "noise_ratio_limit": finding.limits.largest,
        "noise_rms": finding.noise.rms,
        "noise_rms_limit": finding.limits.rms,
        "k": finding.k,
        "scale_from": finding.source,
    }
    if finding.noise.undecided:
        measured["undecided"] = finding.noise.undecided
    if question.fan_in > noise.FAN_IN_START:
        measured["fan_in"] = question.fan_in
        if question.fan_in_assumed:
            measured["fan_in_assumed"] = True
    worst = elements(question, finding.noise.ratios, finding.noise.ratios) if outcome not in ("pass", "skip") else ()
    return OutputVerdict(
        question.name, question.actual.shape, question.actual.dtype.name, outcome, "noise", reason, measured, worst
    )
