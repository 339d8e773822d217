"""The noise standard: is the error what the precision explains? The rule is in docs/standards.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pytest_probe.core.comparison import Comparison
from pytest_probe.core.verdict import Metric, Outcome, OutputVerdict
from pytest_probe.numerics import metrics, noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, round_to, widen
from pytest_probe.numerics.noise_ratio import Bias, Limits, Noise, Spread
from pytest_probe.standards.exact import Exact, elements
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.instability import unstable
from pytest_probe.standards.noise.stages import AMONG_THEMSELVES, BETWEEN_STEPS, INSIDE_LIMITS, STAGES, Stage
from pytest_probe.standards.noise.summed_terms import summed_terms

# A device may err so many times as much as the CPU's own kernel; one whose ratio is beyond the last has no digits left.
CPU_LARGEST, CPU_RMS, CPU_HOPELESS = 2.0, 1.5, 1000.0
# Another device's steps need not be torch's, but it rounds between them in more than one element.
OTHERS = Limits(5.0, 1.0)
# The largest ratio there: granted always, or in units of the other elements' RMS.
OTHERS_LEAST, OTHERS_SHARE = 2.0, 40.0
# Noise scales of a mean shift. The RMS limit beside known steps is 0.5, and a shift is no larger.
STEPS_BIAS = 0.5


class NoiseStandard:
    """Floats by the noise rule; integers, booleans and empty outputs exact."""

    name = "noise"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.actual.dtype.kind in "iub" or not comparison.actual.size:
            return Exact().judge(comparison)
        stage = decide(comparison)
        if stage.unstable:
            return _verdict(comparison, stage, *_beside_unstable(comparison, stage))
        if not stage.within_limits:
            return self._above(comparison, stage)
        bias = _bias(comparison, stage)
        if bias is None:
            return _verdict(comparison, stage, "pass")
        # Only the CPU's own steps may pass: those of another device are not known.
        stepped = _unbiased(comparison) if comparison.case.narrow and stage.source != BETWEEN_STEPS else None
        if stepped is None:
            return _verdict(comparison, stage, "error", bias)
        if comparison.case.on_cpu:
            return _verdict(comparison, stepped, "pass")
        return _verdict(comparison, stage, "warning", f"rounds between its steps: {bias}")

    def _above(self, comparison: Comparison, stage: Stage) -> OutputVerdict:
        """Above the limits: what else may explain it, in the order of the rule."""
        if comparison.case.on_cpu:
            return _verdict(comparison, stage, "error", stage.reason)
        outcome = _beside_cpu(comparison, stage)
        if outcome is not None:
            return _verdict(comparison, stage, *outcome)
        if comparison.case.narrow and self._by_steps(comparison):
            return _verdict(comparison, stage, "warning", f"rounds between its steps: {stage.reason}")
        return _verdict(comparison, stage, "error", stage.reason)

    def _by_steps(self, comparison: Comparison) -> bool:
        """Is it what 16-bit steps give: those of the framework's decompositions, or those of the CPU's kernels?"""
        evidence = comparison.evidence
        narrow = stages.pooled_spread(comparison, stages.run_spread(comparison, evidence.narrow_steps_inside(2)))
        if narrow is not None and _by_other_steps(comparison, stages.noise_of(comparison, narrow)):
            return True
        sampled = evidence.narrow_steps(STAGES[-1])
        if not sampled:
            return False
        moved = replace(comparison, expected=stages.nearest_sample(comparison, [comparison.expected, *sampled]))
        runs = evidence.perturbed(STAGES[-1]) + evidence.float32_steps(STAGES[-1])
        spread = stages.pooled_spread(comparison, stages.run_spread(comparison, runs))
        return stages.noise_of(moved, spread).within(stages.limits_of(comparison))


def decide(comparison: Comparison) -> Stage:
    """The first stage within its limits, else the first that unstable elements brought there, else the last with the
    limits of the rule."""
    found: list[Stage] = []
    by_unstable: list[Stage] = []
    for stage in stages.in_turn(comparison):
        if stage.within_limits:
            others = _without_unstable(comparison, stage)
            if others is None:
                return stage
            by_unstable.append(others)
        found.append(stage)
    if by_unstable:
        return by_unstable[0]
    # Its limits are others than the rule's, which a report would show.
    return next(stage for stage in reversed(found) if stage.source != AMONG_THEMSELVES)


def _without_unstable(comparison: Comparison, stage: Stage) -> Stage | None:
    """The stage where unstable elements grant the others nothing; None where that leaves it within its limits."""
    spread, floor = stage.spread, stages.floor_of(comparison)
    if spread is None or not floor:
        return None
    moved = replace(comparison, expected=stage.center)
    # It passes without c RMS(S), so that no unstable element granted anything.
    if stages.noise_of(moved, spread, floor=0.0).within(stage.limits):
        return None
    jumps = unstable(comparison, spread)
    if jumps is None or not jumps.any():
        return None
    stable = stages.noise_of(moved, Spread(np.where(jumps, 0.0, spread.size), spread.disagree))
    ratios = np.where(jumps, stage.noise.ratios, stable.ratios)
    found = noise_ratio.noise_of_ratios(ratios, comparison.expected, stage.noise.undecided)
    count = int(np.count_nonzero(jumps))
    return None if found.within(stage.limits) else replace(stage, noise=found, unstable=count)


def _beside_unstable(comparison: Comparison, stage: Stage) -> tuple[Outcome, str]:
    """A device that chooses otherwise errs in fewer elements than are unstable, since not each jumps in a few runs; one
    that rounds between 16-bit steps may err in all."""
    wrong = int(np.count_nonzero(stage.noise.ratios > stage.limits.largest))
    found = f"{stage.unstable:,} of {stage.noise.ratios.size:,} elements leap as inputs move by a roundoff"
    # More elements err than may leap: choices do not explain it.
    if wrong > stage.unstable and (comparison.case.on_cpu or not comparison.case.narrow):
        return "error", f"{found}; beside them {stage.reason}, {wrong:,} above it"
    return "warning", f"undecided: {found}; beside them {stage.reason}"


def _unbiased(comparison: Comparison) -> Stage | None:
    """What explains a bias: a constant that was rounded to 16 bits between two steps moves all elements alike."""
    evidence = comparison.evidence
    if stages.rounds_inside(comparison) or not evidence.narrow_steps(STAGES[-1]):
        return None
    runs = evidence.perturbed(STAGES[-1]) + evidence.float32_steps(STAGES[-1])
    stepped = stages.between_steps(comparison, runs, stages.limits_of(comparison))
    return stepped if stepped.within_limits and _bias(comparison, stepped) is None else None


def _by_other_steps(comparison: Comparison, measured: Noise) -> bool:
    """Is it of the size that rounding between steps has, torch's own or others? Element by element neighbours show
    that size, and the limits are close."""
    limits = INSIDE_LIMITS
    if comparison.elementwise:
        limits = Limits(OTHERS.largest, OTHERS.rms * (1 + 1 / max(measured.count, 1) ** 0.5))
    largest = min(limits.largest, max(OTHERS_LEAST, OTHERS_SHARE * stages.rms_of_others(measured)))
    return measured.within(Limits(largest, limits.rms))


def _beside_cpu(comparison: Comparison, stage: Stage) -> tuple[Outcome, str] | None:
    """What the framework's own CPU kernel in the case's dtype says, where it is another device than the tested one."""
    result = comparison.evidence.cpu_result()
    if result is None:
        return None
    # An overflow of the CPU's is taken out of both sides: it says nothing of the other elements.
    lost = _overflown(comparison, result)
    alike = lost & np.isinf(widen(comparison.actual))
    seen = _measure_instead(comparison, stage, np.where(lost, comparison.expected, widen(result)))
    # A witness that gives NaN says nothing.
    if not np.isfinite(seen.largest):
        return "warning", "undecided: the CPU's own kernel gives NaN"
    if seen.largest > CPU_HOPELESS and comparison.precision.name in ("float32", "complex64"):
        return "warning", f"undecided: the CPU's own kernel has noise ratio {seen.largest:,.4g}, no digits are left"
    ours = _measure_instead(comparison, stage, np.where(alike, comparison.expected, widen(comparison.actual)))
    if ours.within(stage.limits):
        return "pass", "as-cpu: the CPU's own kernel overflows as well"
    if ours.largest <= CPU_LARGEST * seen.largest and ours.rms <= CPU_RMS * seen.rms:
        return "pass", f"as-cpu: the CPU's own kernel errs as much ({seen.largest:,.4g})"
    return None


def _overflown(comparison: Comparison, result: AnyArray) -> BoolArray:
    """Where the CPU's result overflows and the reference does not: it excuses an overflow there, and no number."""
    return np.asarray(np.isinf(widen(result)) & np.isfinite(comparison.expected))


def _measure_instead(comparison: Comparison, stage: Stage, values: AnyArray) -> Noise:
    """The noise of other values in the place of the output."""
    return stages.noise_of(replace(comparison, actual=values), stage.spread)


def _bias(comparison: Comparison, stage: Stage) -> str | None:
    """The words for a bias, for outputs narrower than float32."""
    if float_format(comparison.precision).precision >= 24 or stage.noise.largest == 0.0:
        return None
    # Near a tie either neighbour is right: whole classes of quotients lie there.
    rounded = np.where(stage.noise.ratios <= 1, comparison.actual, round_to(stage.center, comparison.precision))
    limit = noise_ratio.ELEMENTWISE_RMS if comparison.elementwise else noise_ratio.RMS
    if stage.source == BETWEEN_STEPS:
        rounded, limit = round_to(stage.center, comparison.precision), STEPS_BIAS
    for allowed in _scales_of_bias(comparison, stage):
        found: tuple[Bias, ...] = noise_ratio.biases(comparison.actual, rounded, comparison.expected, allowed)
        for shift, words in zip(found, ("shifted", "scaled"), strict=False):
            if shift.beyond(limit):
                return f"{words} on average by {shift.effect:,.4g} noise scales (limit {limit:g}), t = {shift.t:,.4g}"
    return None


def _scales_of_bias(comparison: Comparison, stage: Stage) -> Iterator[AnyArray]:
    """Half of float16's smallest subnormal is nothing that rounding shifts an average by: where another scale comes of
    it, float32's counts as well."""
    scales: list[AnyArray] = []
    for dtype in (comparison.precision, np.dtype(np.float32)):
        with np.errstate(invalid="ignore", over="ignore"):
            scale = noise_ratio.scale(
                comparison.expected,
                stage.spread,
                dtype=dtype,
                roundoff=comparison.roundoff,
                floor=stages.floor_of(comparison),
            )
        if not any(np.array_equal(scale, known, equal_nan=True) for known in scales):
            scales.append(scale)
            yield scale


def _verdict(comparison: Comparison, stage: Stage, outcome: Outcome, reason: str = "") -> OutputVerdict:
    actual, noise = comparison.actual, stage.noise
    measured: dict[str, Metric] = dict(metrics.describe(actual, comparison.expected))
    measured |= {
        "noise_ratio": noise.largest,
        "noise_ratio_limit": stage.limits.largest,
        "noise_rms": noise.rms,
        "noise_rms_limit": stage.limits.rms,
        "k": stage.k,
        "scale_from": stage.source,
    }
    if noise.undecided:
        measured["undecided"] = noise.undecided
    terms = summed_terms(comparison)
    if terms.count > noise_ratio.FAN_IN_START:
        measured["fan_in"] = terms.count
        if terms.assumed:
            measured["fan_in_assumed"] = True
    worst = elements(comparison, noise.ratios, noise.ratios) if outcome not in ("pass", "skip") else ()
    return OutputVerdict(comparison.name, actual.shape, actual.dtype.name, outcome, "noise", reason, measured, worst)
