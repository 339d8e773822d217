"""What is wrong with outputs within their limits.

Edges that an input meets exactly: perturbed runs cross them, and a device may not (`x >= 0.5` for `x > 0.5`), or may
choose one of equal values only as the reference does (each of them has the whole gradient).

Unstable elements jump as inputs move by a roundoff, as where one of several equal ones is chosen. How far they
move says nothing of the others.

A bias: the errors of 16-bit elements have one sign, or that of their element.
"""

from __future__ import annotations

import numpy as np

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import allowed_scale, mean_errors, noise_ratio
from pytest_probe.numerics.allowed_scale import Spread, root_mean_square, spread_of
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, round_to, widen
from pytest_probe.numerics.mean_errors import Bias
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.explanation import SINGLE, STAGES, Stage, may_choose
from pytest_probe.standards.noise.stages import AMONG_THEMSELVES, BETWEEN_STEPS, EQUAL_TERMS
from pytest_probe.standards.noise.summed_terms import repeats
from pytest_probe.standards.tables import details

# Roundoffs of the element, or of the output's RMS. What crosses an edge moves by more, and rounding by less.
FAR = 64.0
# Roundoffs of the output's dtype that each element of a sum may be off by: two ulps.
TWO_ULPS = 4.0
# Of the output's RMS. A choice moves an element by about the number that was chosen; less is a number that moves.
CHOICE = 0.01
# Of the spread of perturbed runs. A smaller error is no edge that was crossed, and no other choice.
SMALL = 1 / 16
# Of an error. A run that moves an element by less has not crossed the edge that the device may have crossed.
CROSSING = 0.25
# Runs that round by chance. One leads across in a quarter of the elements at an edge, 16 in all but 1 % of them.
BY_CHANCE = 16
# The share of those elements that no run leads across, from which on the call has an edge that rounding never crosses.
NEVER_CROSSED = 0.9


def crossed(comparison: Comparison, stage: Stage) -> str:
    """What is wrong where only runs that cross an edge explain an error, and no rounding leads across; "" where that is
    nowhere so."""
    if stage.spread is None or stage.center.dtype.kind != "f" or not may_choose(comparison):
        return ""
    with np.errstate(invalid="ignore"):
        off = np.abs(widen(comparison.actual) - stage.center)
    beyond = _beyond_rounding(comparison, off) & (off >= SMALL * stage.spread.size)
    if not beyond.any():
        return ""
    reach = CROSSING * off
    beyond &= _any_further(comparison.evidence.moved_slightly(2), stage.center, reach)
    met = int(np.count_nonzero(beyond))
    runs = _rounded(comparison) if met else []
    if not runs:
        return ""
    beyond &= ~_any_further(runs, stage.center, reach)
    count = int(np.count_nonzero(beyond))
    if count < NEVER_CROSSED * met:
        return ""
    return (
        f"{count:,} of {beyond.size:,} elements are on the wrong side of an edge that an input meets exactly; "
        "no rounding leads there"
    )


def unbalanced(comparison: Comparison, stage: Stage) -> str:
    """What is wrong where unstable elements explain the errors one by one and not their sums: of equal values any may
    be chosen, and all runs agree on what the choice adds up to. "" where nothing is."""
    center, spread = stage.center, stage.spread
    if spread is None or center.dtype.kind != "f" or center.ndim == 0 or not may_choose(comparison):
        return ""
    wide = widen(comparison.actual)
    if not np.isfinite(wide).all():
        return ""
    off = np.abs(wide - center)
    if not (np.isfinite(center).all() and (_beyond_rounding(comparison, off) & (off >= SMALL * spread.size)).any()):
        return ""
    leaps = spread.size > CHOICE * allowed_scale.root_mean_square(np.abs(center))
    runs = [run for run in comparison.evidence.perturbed(STAGES[-1]) if np.isfinite(run).all()] if leaps.any() else []
    # What moves in proportion to the inputs is no choice: differences of large numbers lose digits on a device alone.
    jumps = unstable(comparison, spread) if runs else None
    if jumps is None or not (leaps & jumps).any():
        return ""
    leaps &= jumps
    errors, *moves = (np.where(leaps, array - center, 0.0) for array in (wide, *runs))
    for axes in (*((axis,) for axis in range(center.ndim)), tuple(range(center.ndim))):
        wrong = _wrong_sums(comparison, center, errors, moves, axes)
        if wrong.any():
            # A difference of large numbers is no choice: rounding its terms moves it, and the sum with it.
            rounded = [np.sum(np.where(leaps, run - center, 0.0), axis=axes) for run in _rounded(comparison)]
            wrong &= ~_any_further(rounded, np.zeros(wrong.shape), CROSSING * np.abs(np.sum(errors, axis=axes)))
        if wrong.any():
            sums = f"{int(np.sum(wrong)):,} of {wrong.size:,} sums differ"
            return f"{sums}, although the choice among equal values does not change them"
    return ""


def _wrong_sums(
    comparison: Comparison, center: AnyArray, errors: AnyArray, moves: list[AnyArray], axes: tuple[int, ...]
) -> BoolArray:
    """Which sums over some dimensions are off where no run moves them, though their elements move."""
    values = np.abs(center)
    typical = allowed_scale.root_mean_square(values)
    off = np.abs(np.sum(errors, axis=axes))
    leapt = np.max([np.sum(np.abs(run), axis=axes) for run in moves], axis=0)
    moved = np.max([np.abs(np.sum(run, axis=axes)) for run in moves], axis=0)
    # Rounding inside and at the end adds up to so much at most; jumps must cancel in the sum of each run.
    inside = FAR * comparison.roundoff * np.sum(np.maximum(values, typical), axis=axes)
    rounding = inside + TWO_ULPS * _roundoff(comparison) * np.sum(values, axis=axes)
    # Where runs move by less, no choice differs between them: steps in float32 make the elements jump.
    told = (moved <= rounding) & (leapt > np.maximum(2 * rounding, CHOICE * typical))
    return np.asarray(told & (off > np.maximum(2 * rounding, CROSSING * leapt)))


def _rounded(comparison: Comparison) -> list[AnyArray]:
    """Runs on exact inputs that round inside; none where not every step is known."""
    evidence = comparison.evidence
    runs = evidence.rounded_by_chance(BY_CHANCE)
    if not runs or not comparison.case.narrow:
        return runs
    return runs + evidence.narrow_steps(1) + evidence.composed_steps() + evidence.composed_steps("separate")


def _roundoff(comparison: Comparison) -> float:
    return max(float_format(comparison.precision).roundoff, comparison.roundoff)


def _beyond_rounding(comparison: Comparison, off: AnyArray) -> BoolArray:
    values = np.abs(comparison.expected)
    typical = allowed_scale.root_mean_square(values[np.isfinite(values)])
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(off) & (off > FAR * _roundoff(comparison) * np.maximum(values, typical)))


def _any_further(runs: list[AnyArray], center: AnyArray, reach: AnyArray) -> BoolArray:
    with np.errstate(invalid="ignore"):
        further = [np.abs(run - center) >= reach for run in runs]
    return np.logical_or.reduce(further) if further else np.zeros(center.shape, dtype=bool)


# Perturbed runs, as many as the last stage of the rule has.
RUNS = 4
# By a 16th of a roundoff a smooth result moves a 16th as far, and one that is quadratic there 1 / 256.
LEAST, MOST = 4.0, 1024.0
# Rounding between steps adds no more than so many roundoffs to what inputs do, or it does so nearly everywhere, or
# comes to nothing next to the output's own numbers.
STEPS, NARROW_STEPS, EVERYWHERE, VISIBLE = 4096.0, 16.0, 0.75, 0.01


def unstable(comparison: Comparison, spread: Spread) -> BoolArray | None:
    """Which elements are unstable; None where that cannot be known, and for sums of products, which choose nothing.
    spread is the scatter of the runs that the output is judged by, of which some may jump where these do not."""
    if details(comparison.classes, "contraction"):
        return None
    expected, dtype = comparison.expected, comparison.actual.dtype
    moved = spread_of(comparison.evidence.perturbed(RUNS), expected, dtype)
    if moved is None:
        return None
    less = spread_of(comparison.evidence.perturbed_less(RUNS), expected, dtype)
    if less is None:
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
    limit = noise_ratio.usual_limits(comparison.elementwise).rms
    if stage.source == EQUAL_TERMS:
        # What equal terms lose in a sum moves all that it enters.
        limit *= stage.limits.largest / noise_ratio.LARGEST_LIMIT
    if stage.source == BETWEEN_STEPS:
        rounded, limit = round_to(stage.center, comparison.precision), STEPS_BIAS
    center, expected, allowed = stage.center, comparison.expected, stages.scale_of(comparison, stage.spread)
    found: tuple[Bias, ...] = mean_errors.biases(comparison.actual, rounded, center, expected, allowed)
    for shift, words in zip(found, ("shifted", "scaled"), strict=False):
        if shift.beyond(limit):
            return f"{words} on average by {shift.effect:,.4g} noise scales (limit {limit:g}), t = {shift.t:,.4g}"
    return None
