"""Edges that an input meets exactly: perturbed runs cross them, and a device may not (`x >= 0.5` for `x > 0.5`), or may
choose one of equal values only as the reference does (each of them has the whole gradient)."""

from __future__ import annotations

import numpy as np

from pytest_probe.core.comparison import Comparison
from pytest_probe.numerics import noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, widen
from pytest_probe.standards.noise.stages import STAGES, Stage

# Roundoffs of the element, or of the output's RMS. What crosses an edge moves by more, and rounding by less.
FAR = 64.0
# Roundoffs of the output's dtype that each element of a sum may be off by: two ulps.
LAST = 4.0
# Of the output's RMS. A choice moves an element by about the number that was chosen; less is a number that moves.
CHOICE = 0.01
# A scale of so small a part of the error is no edge that was crossed.
OWED = 1 / 16
# A run has crossed an edge where it moves by so much of what the device is off by.
CROSSED = 0.25
# Runs that round by chance, of which one leads across in a quarter; and the share of elements for which none may do so
# where it does for others.
CHANCES, SETTLED = 16, 0.9


def crossed(comparison: Comparison, stage: Stage) -> str:
    """What is wrong where only runs that cross an edge explain an error, and no rounding leads across; "" where that is
    nowhere so."""
    if stage.spread is None or stage.center.dtype.kind != "f":
        return ""
    off = np.abs(widen(comparison.actual) - stage.center)
    beyond = _beyond_rounding(comparison, off) & (off >= OWED * stage.spread.size)
    if not beyond.any():
        return ""
    evidence, reach = comparison.evidence, CROSSED * off
    beyond &= _any_further(evidence.moved_slightly(2), stage.center, reach)
    met = int(np.count_nonzero(beyond))
    runs = evidence.rounded_by_chance(CHANCES) if met else []
    if not runs:
        return ""
    if comparison.case.narrow:
        runs = runs + evidence.narrow_steps(1) + evidence.composed_steps() + evidence.composed_steps(separate=True)
    beyond &= ~_any_further(runs, stage.center, reach)
    count = int(np.count_nonzero(beyond))
    if count < SETTLED * met:
        return ""
    return f"{count:,} of {beyond.size:,} elements are beyond an edge that inputs meet exactly, and no rounding crosses"


def unbalanced(comparison: Comparison, stage: Stage) -> str:
    """What is wrong where unstable elements explain the errors one by one and not their sums: of equal values any may
    be chosen, and all runs agree on what the choice adds up to. "" where nothing is."""
    center, spread = stage.center, stage.spread
    wide = widen(comparison.actual)
    if spread is None or center.dtype.kind != "f" or center.ndim == 0 or not np.isfinite(wide).all():
        return ""
    off = np.abs(wide - center)
    if not (np.isfinite(center).all() and (_beyond_rounding(comparison, off) & (off >= OWED * spread.size)).any()):
        return ""
    typical = noise_ratio.root_mean_square(np.abs(center))
    leaps = spread.size > CHOICE * typical
    runs = [run for run in comparison.evidence.perturbed(STAGES[-1]) if np.isfinite(run).all()] if leaps.any() else []
    if not runs:
        return ""
    errors, *others = (np.where(leaps, array - center, 0.0) for array in (wide, *runs))
    for axes in (*((axis,) for axis in range(center.ndim)), tuple(range(center.ndim))):
        off = np.abs(np.sum(errors, axis=axes))
        leapt = np.max([np.sum(np.abs(run), axis=axes) for run in others], axis=0)
        moved = np.max([np.abs(np.sum(run, axis=axes)) for run in others], axis=0)
        # Rounding inside and at the end adds up to so much at most; what leaps must cancel in the sum of each run.
        rounding = FAR * comparison.roundoff * np.sum(np.maximum(np.abs(center), typical), axis=axes)
        rounding = rounding + LAST * _roundoff(comparison) * np.sum(np.abs(center), axis=axes)
        told = (moved <= rounding) & (leapt > 2 * rounding)
        wrong = told & (off > np.maximum(2 * rounding, CROSSED * leapt))
        if wrong.any():
            return f"{int(np.sum(wrong)):,} of {wrong.size:,} sums differ that stay whichever of equal values is chosen"
    return ""


def _roundoff(comparison: Comparison) -> float:
    return max(float_format(comparison.precision).roundoff, comparison.roundoff)


def _beyond_rounding(comparison: Comparison, off: AnyArray) -> BoolArray:
    values = np.abs(comparison.expected)
    typical = noise_ratio.root_mean_square(values[np.isfinite(values)])
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(off) & (off > FAR * _roundoff(comparison) * np.maximum(values, typical)))


def _any_further(runs: list[AnyArray], center: AnyArray, reach: AnyArray) -> BoolArray:
    with np.errstate(invalid="ignore"):
        further = [np.abs(run - center) >= reach for run in runs]
    return np.logical_or.reduce(further) if further else np.zeros(center.shape, dtype=bool)
