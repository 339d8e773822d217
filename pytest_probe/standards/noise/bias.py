"""A bias: the errors of 16-bit elements within their limits have one sign, or that of their element."""

from __future__ import annotations

import numpy as np

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import mean_errors, noise_limits
from pytest_probe.numerics.dtypes import float_format, round_to
from pytest_probe.numerics.mean_errors import Bias
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.explanation import SINGLE, STAGES, Stage
from pytest_probe.standards.noise.stages import AMONG_THEMSELVES, BETWEEN_STEPS, EQUAL_TERMS
from pytest_probe.standards.noise.summed_terms import repeats

# Noise scales of a mean shift compared with known steps: less than their RMS limit.
STEPS_BIAS = 0.5


def bias_beside_steps(comparison: Comparison, stage: Stage) -> str | None:
    """The words for a bias that float32's rounding does not explain, though no element made its steps be asked for: one
    element of 16 bit is granted more than the mean of many."""
    trouble = bias(comparison, stage)
    if trouble is None or stage.source in (BETWEEN_STEPS, AMONG_THEMSELVES):
        return trouble
    widest = stages.by_steps(comparison, STAGES[-1])
    if repeats(comparison):
        widest = stages.of_equal_terms(comparison, widest)
    return bias(comparison, widest) if widest.within_limits else trouble


def bias(comparison: Comparison, stage: Stage) -> str | None:
    """The words for a bias, for outputs narrower than float32."""
    if float_format(comparison.precision).precision >= SINGLE or stage.noise.largest == 0.0:
        return None
    # Near a tie either neighbour is right: whole classes of quotients lie there.
    rounded = np.where(stage.noise.ratios <= 1, comparison.actual, round_to(stage.center, comparison.precision))
    limit = noise_limits.ELEMENTWISE_RMS if comparison.elementwise else noise_limits.RMS
    if stage.source == EQUAL_TERMS:
        # What equal terms lose in a sum moves all that it enters.
        limit *= stage.limits.largest / noise_limits.LARGEST
    if stage.source == BETWEEN_STEPS:
        rounded, limit = round_to(stage.center, comparison.precision), STEPS_BIAS
    center, expected, allowed = stage.center, comparison.expected, stages.scale_of(comparison, stage.spread)
    found: tuple[Bias, ...] = mean_errors.biases(comparison.actual, rounded, center, expected, allowed)
    for shift, words in zip(found, ("shifted", "scaled"), strict=False):
        if shift.beyond(limit):
            return f"{words} on average by {shift.effect:,.4g} noise scales (limit {limit:g}), t = {shift.t:,.4g}"
    return None
