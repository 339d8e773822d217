"""Steps of a staircase: the reference's own step, or the neighbour where the argument lies on the edge.

A step is right if it lies between the least and the largest step, each correctly rounded, that the reference and runs
within 4 roundoffs of its inputs give: 4 runs, then 16, then 64. Where the arguments lie exactly on an edge, as in
floor_divide(6, 3), another step than the reference's is a warning. A step that is not a number of the dtype may be off
by 4 roundoffs. Counts (of a histogram) must add up to the reference's total. All arrays have the output's shape.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pytest_probe.model.comparison import Choice, Comparison
from pytest_probe.model.verdict import Outcome, OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_floating, ulp, widen
from pytest_probe.standards.classes.selected_indices import along_one_rank, occurs_twice
from pytest_probe.standards.exact import Exact, correctly_rounded, elements, identical
from pytest_probe.standards.noise.explanation import OWN_KERNEL, whose_result

# Perturbed runs, more while an element is outside. One run crosses an edge that is a rounding of the quotient away with
# a probability of 0.25 or more in 16 bit, so that 64 runs miss it once in 10^8 elements.
_STEP_RUNS = (4, 16, 64)
# What the runs of one output may take, in bytes; the first of those numbers is made whatever they take.
_MOST_BYTES = 2**30
# One of two equal values is in none of so many runs once in 65,536 elements.
_INDEX_RUNS = 16
# Three roundings that each lead to the same side are in none of so many runs once in 5,000 elements at an edge.
_CHANCE_RUNS = 64
# What is wrong with elements that only a step crosses which should be exact.
_ACROSS = (
    "are on another step, though the arguments lie exactly on its edge: only inexact steps inside, such as a "
    "multiplication by a reciprocal, lead across"
)
# How far the inputs of those runs move, in roundoffs: one would be one rounding inside, and kernels have a few.
_NEAR_STEPS = 4.0


class Discrete:
    """Equal to the reference, or between it and what it becomes when the arguments move by 4 roundoffs."""

    name = "discrete"
    counts: ClassVar[tuple[int, ...]] = _STEP_RUNS
    # What is wrong with elements that are not right.
    wrong: ClassVar[str] = "are on another step, and are not within 4 roundoffs of its edge"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        exact = Exact().judge(comparison)
        if exact.verdict == "pass":
            return exact
        for count in self.counts:
            if count == self.counts[0] or count * comparison.expected.nbytes <= _MOST_BYTES:
                inside = self._inside(comparison, [comparison.expected, *self.runs(comparison, count)])
                if inside.all():
                    break
        if not inside.all():
            inside |= self.points_alike(comparison)
        outcome: Outcome = "error"
        reason, wrong, words = _miscounted(comparison), ~inside, self.wrong
        if inside.all() and not reason:
            wrong, words, outcome = self.doubtful(comparison), _ACROSS, "warning"
        count = int(np.count_nonzero(wrong))
        if count:
            reason = f"{count:,} of {inside.size:,} elements {words}"
        if not reason:
            outcome = "pass"
        elif outcome == "error" and (whose := whose_result(comparison)) and _are_in_next_bins(comparison):
            outcome, reason = "warning", f"{whose}'s {OWN_KERNEL}: {reason}"
        shape, dtype = comparison.actual.shape, comparison.actual.dtype.name
        measured = metrics.describe(comparison.actual, comparison.expected)
        return OutputVerdict(
            comparison.name, shape, dtype, outcome, self.name, reason, measured, elements(comparison, wrong)
        )

    def _inside(self, comparison: Comparison, runs: list[AnyArray]) -> AnyArray:
        """Which elements are on the reference's step, or between those of the runs."""
        dtype = comparison.actual.dtype
        with np.errstate(invalid="ignore"):
            # A step may fall to either side of an edge that the runs cross, and anywhere between.
            low = correctly_rounded(np.minimum.reduce(runs), dtype)
            high = correctly_rounded(np.maximum.reduce(runs), dtype)
            inside = (comparison.actual >= low) & (comparison.actual <= high)
        # A step such as 0.1 is no number of the dtype: the runs round it, and the device may have, otherwise.
        inside |= _near_inexact_step(comparison)
        inside |= identical(comparison.actual, correctly_rounded(comparison.expected, dtype))
        return np.asarray(inside & self.fits(comparison, runs))

    def runs(self, comparison: Comparison, count: int) -> list[AnyArray]:
        """Where a step may fall to the other side, in `count` runs of the kind that moves furthest."""
        evidence, few = comparison.evidence, self.counts[0]
        if not comparison.case.narrow:
            return evidence.perturbed_more(count)
        return evidence.perturbed_more(few) + evidence.perturbed_narrow(count) + evidence.narrow_steps(few)

    def fits(self, comparison: Comparison, runs: list[AnyArray]) -> AnyArray:
        """Anything between the runs fits a staircase."""
        return np.ones(comparison.expected.shape, dtype=bool)

    def doubtful(self, comparison: Comparison) -> AnyArray:
        """Which elements are right only if a step inside is not exact. None of counts: rounding that the API hides
        decides in which bin an element at an edge is."""
        if "counts" in comparison.classes:
            return np.zeros(comparison.expected.shape, dtype=bool)
        return _across(comparison)

    def points_alike(self, comparison: Comparison) -> AnyArray:
        """A step points at nothing."""
        return np.zeros(comparison.expected.shape, dtype=bool)


def _miscounted(comparison: Comparison) -> str:
    """Are more, or fewer, elements counted than lie in the range? "" where they are not, or counts are rounded."""
    wanted = comparison.expected
    whole = np.array_equal(wanted, np.floor(wanted)) if "counts" in comparison.classes else False
    if not whole or not np.array_equal(widen(correctly_rounded(wanted, comparison.actual.dtype)), wanted):
        return ""
    found, all_of_them = float(np.sum(widen(comparison.actual))), float(np.sum(wanted))
    return "" if found == all_of_them else f"{found:,.0f} elements are counted, but {all_of_them:,.0f} lie in the range"


def _are_in_next_bins(comparison: Comparison) -> bool:
    """Is each counted element in its bin or the next one? A count to which 1 adds nothing stays as it is: then three
    bins together hold that many at least, and one no more than three of the reference."""
    if "counts" not in comparison.classes or comparison.expected.ndim != 1:
        return False
    actual, full = widen(comparison.actual), 1 / float_format(comparison.precision).roundoff
    if not (actual >= 0).all():
        return False
    if comparison.expected.max() >= full:
        three = np.convolve(actual, np.ones(3), "same")
        most = np.convolve(comparison.expected, np.ones(3), "same")
        return bool(((three >= np.minimum(comparison.expected, full)) & (actual <= most)).all())
    found, wanted = np.cumsum(actual), np.cumsum(comparison.expected)
    low, high = np.append(0.0, wanted[:-1]), np.append(wanted[1:], wanted[-1])
    low[-1] = wanted[-1]
    return bool(((low <= found) & (found <= high)).all())


class OwnSteps(Discrete):
    """Integers and booleans of a function of no known API: a neighbouring step where the argument lies near an edge,
    or, where runs are further apart, what a run gives. Where the arguments lie exactly on the edge, only if rounding
    inside leads across. Of choices among elements any that points at an equal one, and what follows from it."""

    counts = (_INDEX_RUNS,)
    wrong = (
        "are on the other side of an edge: the arguments are not within 4 roundoffs of it, or lie exactly on it where "
        "no rounding inside leads across"
    )

    def runs(self, comparison: Comparison, count: int) -> list[AnyArray]:
        evidence, narrow = comparison.evidence, comparison.case.narrow
        steps = evidence.narrow_steps(_STEP_RUNS[0]) if narrow else []
        if narrow and not comparison.case.on_cpu:
            steps = evidence.composed_steps()
        others = evidence.chosen_otherwise(count) if _chooses(comparison) else []
        return evidence.perturbed_more(count) + steps + others

    def fits(self, comparison: Comparison, runs: list[AnyArray]) -> AnyArray:
        near = np.maximum.reduce(runs).astype(float) - np.minimum.reduce(runs) <= 1
        near |= np.logical_or.reduce([comparison.actual == run for run in runs])
        # Equal elements lie exactly on the edge between them, and either may be chosen.
        return np.asarray(near if _chooses(comparison) else near & ~_across(comparison))

    def doubtful(self, comparison: Comparison) -> AnyArray:
        """None: the edges that its arguments meet exactly are seen."""
        return np.zeros(comparison.expected.shape, dtype=bool)

    def points_alike(self, comparison: Comparison) -> AnyArray:
        """Where both sides are indices that a choice inside the call gave: do they point at equal elements, in float64
        or in the call's own dtypes? A kernel that names an element twice points at none."""
        exact, *others = comparison.evidence.choices() or ((),)
        found = np.zeros(comparison.expected.shape, dtype=bool)
        for place, choice in enumerate(exact):
            if choice.indices.shape == found.shape and np.array_equal(choice.indices, comparison.expected):
                for each in (choice, *(other[place] for other in others if len(other) == len(exact))):
                    found |= _points_alike(comparison.actual, choice.indices, each)
        return found


def _chooses(comparison: Comparison) -> bool:
    """Does the call choose among elements?"""
    return any(comparison.evidence.choices())


def _across(comparison: Comparison) -> AnyArray:
    """Which elements are on another step, though the arguments lie exactly on the edge and no rounding inside leads
    across?"""
    evidence, off = comparison.evidence, _farthest([widen(comparison.actual)], comparison)
    met = _farthest(evidence.perturbed_less(_INDEX_RUNS), comparison) if off.any() else np.zeros(off.shape)
    # Where nothing jumps, results move in proportion to their inputs: by a 64th of those runs.
    jumps = met > _farthest(evidence.perturbed_more(_STEP_RUNS[0]), comparison) / 2 if met.any() else off < 0
    wrong = jumps & (off > met / 2)
    if wrong.any():
        wrong &= _farthest(evidence.rounded_by_chance(_CHANCE_RUNS), comparison) < met / 2
    if wrong.any() and comparison.case.narrow:
        wrong &= _farthest(evidence.narrow_steps(1) + evidence.composed_steps(), comparison) < met / 2
    return np.asarray(wrong)


def _farthest(runs: list[AnyArray], comparison: Comparison) -> AnyArray:
    """How far those are from the reference at most, element by element."""
    expected = widen(comparison.expected)
    with np.errstate(invalid="ignore"):
        found = [np.nan_to_num(np.abs(widen(run) - expected), posinf=np.inf) for run in runs]
    return np.maximum.reduce(found) if found else np.zeros(expected.shape)


def _points_alike(actual: AnyArray, expected: AnyArray, choice: Choice) -> AnyArray:
    """Which of both indices point at equal elements of what is chosen from, whose choice names none twice if the
    reference's does not."""
    none = np.zeros(actual.shape, dtype=bool)
    indices = along_one_rank(choice.values, choice.dim, actual, expected)
    if indices is None:
        return none
    values, dim, actual, expected = indices
    if actual.size and (actual.min() < 0 or actual.max() >= values.shape[dim]):
        return none
    if occurs_twice(actual, dim) and not occurs_twice(expected, dim):
        return none
    same = identical(np.take_along_axis(values, actual, dim), np.take_along_axis(values, expected, dim))
    return np.asarray(same).reshape(none.shape)


def _near_inexact_step(comparison: Comparison) -> AnyArray:
    """Is it the reference's own step, where that is no number of the dtype (round to three decimals), but for rounding
    in the arithmetic that leads there?"""
    wanted = correctly_rounded(comparison.expected, comparison.actual.dtype)
    if not is_floating(wanted.dtype):
        return np.zeros(wanted.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        reach = _NEAR_STEPS * comparison.roundoff * np.abs(comparison.expected)
        unit = ulp(comparison.expected, comparison.actual.dtype)
        near = np.abs(widen(comparison.actual) - comparison.expected) <= reach + unit / 2
        return np.asarray(near & (widen(wanted) != comparison.expected))
