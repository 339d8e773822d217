"""Errors that a device makes by intent, such as TF32 or flushing to zero.

In: a comparison above its limits. Out: its verdict under the modes that the user allows, or the mode that would explain
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Assumption, Comparison, Evidence, RunKind, Standard
from pytest_probe.model.device_modes import Behaviour
from pytest_probe.model.verdict import TABLE_METRIC, OutputVerdict
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.dtypes import SMALLEST_FLOAT32, AnyArray, is_floating, round_to, truncated, widen
from pytest_probe.standards.device_modes.rounded_operands import of_rounded_operands
from pytest_probe.standards.device_modes.sampled_rounding import SampledEvidence, of_sampled_rounding
from pytest_probe.standards.device_modes.signature import unlike_samples
from pytest_probe.standards.noise.summed_terms import summed_terms

# What rounds to the smallest normal number may as well be below it.
_BORDER = 1.01


def of_flushing(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison to a device that may flush at any step, or at none: vectors and the rest of a loop differ.

    Of each element that reference counts which is nearest. What is subnormal in the arguments and in the output is
    zero, so that what was copied may stay, and equal zeros may trade places.
    """
    found = [comparison.evidence.alternative(comparison, Assumption(mode)) for mode in behaviour.variants]
    others = [other for other in found if other is not None]
    call = comparison.call.mapped(_zeroed)
    if comparison.actual.dtype.kind in "iub":
        # Without an emulation too: the zeroed arguments alone may explain a choice.
        emulated = replace(comparison, allowance=replace(comparison.allowance, emulated=True))
        yield from (other.of_call(call) for other in (*others, emulated))
        return
    values = [comparison.expected, *(other.expected for other in others)]
    # Zero and the subnormal number are both right there.
    small = np.minimum.reduce([np.abs(value) for value in values]) < SMALLEST_FLOAT32 * _BORDER
    actual = np.where(small, _zeroed(comparison.actual), comparison.actual)
    values.append(np.where(small, 0.0, comparison.expected))
    expected = allowed_scale.nearest_run(actual, values)
    evidence = _FlushedEvidence(comparison, others, values, expected)
    allowance = replace(comparison.allowance, emulated=True, lost=SMALLEST_FLOAT32)
    flushed = replace(comparison, actual=actual, expected=expected, evidence=evidence, allowance=allowance)
    yield flushed.of_call(call)


class _FlushedEvidence(Evidence, Struct, frozen=True):
    """Runs of the reference and of its emulations, each as far from `expected` as it is from its own reference. values
    are what the device may have come to."""

    comparison: Comparison
    others: Sequence[Comparison]
    values: list[AnyArray]
    expected: AnyArray

    def runs(self, kind: RunKind, count: int) -> list[AnyArray]:
        sides = (self.comparison, *self.others)
        made = [_moved(run, each.expected, self.expected) for each in sides for run in each.evidence.runs(kind, count)]
        if kind != "perturbed" or not count:
            return made
        # A sum loses terms below the smallest normal number on its way, though neither operands nor results tell. The
        # largest error that passes is that of all terms.
        terms = summed_terms(self.comparison).count
        lost = SMALLEST_FLOAT32 * min(1.0, terms / noise_ratio.LARGEST_LIMIT) if terms > 1 else 0.0
        return [*made, self.expected + lost]

    def cpu_result(self) -> AnyArray | None:
        """The CPU's kernel flushes nothing: it errs from the value that is nearest to its own."""
        own = self.comparison.evidence.cpu_result()
        if own is None:
            return None
        return _moved(widen(own), allowed_scale.nearest_run(own, self.values), self.expected)


def _moved(values: AnyArray, source: AnyArray, target: AnyArray) -> AnyArray:
    """Values as far from the target as they are from the source; what is not finite stays."""
    with np.errstate(invalid="ignore", over="ignore"):
        moved = target + (values - source)
    return np.asarray(np.where(np.isfinite(values) & np.isfinite(source), moved, values))


def _zeroed(value: Any) -> Any:
    """An array with zeros for subnormal numbers; anything else as it is."""
    if not isinstance(value, np.ndarray) or not is_floating(value.dtype):
        return value
    return np.where(np.abs(widen(value)) < SMALLEST_FLOAT32, np.zeros_like(value), value)


# Roundoffs that a kernel may be off by before it cuts, and runs that say where it is more, as many as the noise rule's.
_REACH, _CUT_RUNS = 4.0, 4


def under_modes(
    standard: Standard, comparison: Comparison, verdict: OutputVerdict, allowed: Sequence[Behaviour]
) -> OutputVerdict | None:
    """The verdict where an allowed mode explains the output: pass, with the mode's name as a metric.

    Raises Unsupported for gradients of factors under a mode that rounds operands: a device knows factors less precisely
    than any tie between such operands, so that its own go another way than the emulated ones.
    """
    if TABLE_METRIC in verdict.metrics:
        # Within the limits of noise: a table has none for operands that are rounded.
        allowed = [behaviour for behaviour in allowed if behaviour.rounds]
    for behaviour in allowed:
        for emulated in emulations(comparison, behaviour):
            found = judge_emulated(standard, emulated)
            if found is not None and found.verdict == "pass":
                metrics = f"{metrics_text(found)} instead of {metrics_text(verdict)}"
                reason = f"as {behaviour.name} ({behaviour.description}): {metrics}"
                return replace(found, reason=reason, metrics={**found.metrics, "mode": behaviour.name})
    of_factors = comparison.direction == "backward" and "factorisation" in comparison.classes
    if of_factors and any(behaviour.rounds and _concerns(comparison, behaviour) for behaviour in allowed):
        raise Unsupported(f"{comparison.name}: {verdict.reason}, under a mode that rounds factors", "rounded factors")
    return None


def judge_emulated(standard: Standard, comparison: Comparison) -> OutputVerdict | None:
    """The verdict; None where the standard has none for such a reference."""
    with contextlib.suppress(Unsupported):
        found, evidence = standard.judge(comparison), comparison.evidence
        if found.verdict == "pass" and isinstance(evidence, SampledEvidence) and evidence.signed:
            trouble = unlike_samples(comparison, evidence.samples)
            return replace(found, verdict="error", reason=trouble) if trouble else found
        return found
    return None


def emulations(comparison: Comparison, behaviour: Behaviour) -> Iterator[Comparison]:
    """The comparison as each variant of a mode answers it; none where the mode changes nothing in this call."""
    if not _concerns(comparison, behaviour):
        return
    if behaviour.cuts:
        # The comparison to a device that cuts: what float32 inside may have come to, cut, counts as rounded.
        expected, dtype = comparison.expected, comparison.precision
        near = _REACH * comparison.roundoff * np.abs(expected)
        reached = [expected - near, expected + near, *comparison.evidence.perturbed(_CUT_RUNS)]
        ends = [truncated(value, dtype) for value in (np.minimum.reduce(reached), np.maximum.reduce(reached))]
        wide = widen(comparison.actual)
        cut = (wide >= ends[0]) & (wide <= ends[1])
        actual = np.where(cut, round_to(expected, dtype), comparison.actual).astype(comparison.actual.dtype)
        yield replace(comparison, actual=actual, allowance=replace(comparison.allowance, emulated=True))
        return
    explained = of_sampled_rounding if behaviour.sampled else of_flushing if behaviour.flushes else of_rounded_operands
    yield from explained(comparison, behaviour)


def _concerns(comparison: Comparison, behaviour: Behaviour) -> bool:
    chosen = comparison.precision.kind in "iub" and behaviour.flushes
    if comparison.precision.name not in behaviour.dtypes and not chosen:
        return False
    if behaviour.classes and behaviour.classes.isdisjoint(comparison.classes):
        return False
    if not behaviour.others.isdisjoint(comparison.classes):
        return False
    return behaviour.sampled or not (comparison.case.narrow and behaviour.rounds)


def metrics_text(verdict: OutputVerdict) -> str:
    """Largest and RMS noise ratio of a verdict, "17,600 / 2,130"; the share that differs where it has none."""
    ratios = [verdict.metrics.get(name) for name in ("noise_ratio", "noise_rms")]
    if None in ratios:
        return f"{100 * float(verdict.metrics.get('mismatch', 0.0)):.3g} % different"
    return " / ".join(short(float(ratio)) for ratio in ratios if ratio is not None)


def short(value: float) -> str:
    """A number with three digits that mean something, "17,600"."""
    return f"{float(f'{value:.3g}'):,g}"
