"""Errors that a device makes by intent, such as TF32 or flushing to zero.

In: a comparison above its limits. Out: its verdict under the modes that the user allows, or the mode that would explain
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import Unsupported
from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.device_modes import Behaviour
from pytest_probe.model.verdict import TABLE_METRIC, OutputVerdict
from pytest_probe.numerics.dtypes import round_to, truncated, widen
from pytest_probe.standards.device_modes.flushing import of_flushing
from pytest_probe.standards.device_modes.rounded_operands import of_rounded_operands
from pytest_probe.standards.device_modes.sampled_rounding import SampledEvidence, of_sampled_rounding
from pytest_probe.standards.device_modes.signature import unlike_samples

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
