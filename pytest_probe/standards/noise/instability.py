"""Unstable elements: those that jump as inputs move by a roundoff, as where one of several equal ones is chosen. How
far they move says nothing of the others."""

from __future__ import annotations

import numpy as np

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics.dtypes import BoolArray, float_format
from pytest_probe.numerics.noise_ratio import Spread, root_mean_square, spread_of
from pytest_probe.standards.api_class import details

# Perturbed runs, as many as the last stage of the rule has.
RUNS = 4
# By a 16th of a roundoff a smooth result moves a 16th as far, and one that is quadratic there 1 / 256.
LEAST, MOST = 4.0, 1024.0
# Rounding between steps adds no more than so many roundoffs to what inputs do, or it does so nearly everywhere, or
# comes to nothing beside the output's own numbers.
STEPS, NARROW_STEPS, EVERYWHERE, VISIBLE = 4096.0, 16.0, 0.75, 0.01


def unstable(comparison: Comparison, spread: Spread) -> BoolArray | None:
    """Which elements are unstable; None where that cannot be told, and for sums of products, which choose nothing.
    spread is the scatter of the runs that the output is judged by, of which some may jump where these do not."""
    if details(comparison.classes, "contraction"):
        return None
    expected, dtype = comparison.expected, comparison.actual.dtype
    moved = spread_of(comparison.evidence.perturbed(RUNS), expected, dtype)
    less = spread_of(comparison.evidence.perturbed_less(RUNS), expected, dtype)
    if moved is None or less is None:
        return None
    # Neither linear nor quadratic in the shift: it jumps in both, or in the larger alone.
    found = (moved.size < LEAST * less.size) | (moved.size > MOST * less.size)
    values = np.abs(expected)
    own = np.maximum(moved.size, comparison.roundoff * values)
    coarser = NARROW_STEPS * float_format(comparison.precision).roundoff / comparison.roundoff
    visible = VISIBLE * root_mean_square(values[np.isfinite(values)])
    far = spread.size > np.maximum(max(coarser, STEPS) * own, visible)
    # Where nearly all are far off it is a rounding between steps, and no choice.
    return np.asarray(found | far if far.mean() < EVERYWHERE else found)
