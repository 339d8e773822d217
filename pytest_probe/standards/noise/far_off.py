"""Errors so far beyond all limits that few runs tell them, and few measurements.

Most runs of an output that fails are made to find out whether the next one explains it. No later stage grants an
element less than an earlier one does: what is above the limits beside the spread of all runs is so in every stage.

Where a function has no jump (`smooth` in classes.yaml) a run moves each element by a random distance of one
distribution. Let three runs, one of each kind, leave elements F times above the limit. A device that is right errs by
no more than the limit times the largest of twelve such distances, so each of these elements must have moved F times
less in all of the three than in one of the others. One run in 0.4 F does that, of distances in a normal distribution
whose largest of twelve is three deviations. For one element and F = 1,024 that makes a chance of 10^-8 in three runs,
for eight that move apart and F = 32 one of 10^-27. And no healthy error uses up its limit, as this assumes: a kernel
that errs by 37 of the 64 that are granted is the farthest known.
"""

from __future__ import annotations

import numpy as np

from pytest_probe.model.comparison import Comparison
from pytest_probe.standards.noise import stages, steps
from pytest_probe.standards.noise.stages import STAGES, Measured, Stage

# Times the largest ratio that is granted, of this many elements, and of one alone.
FAR, MANY, FAR_ALONE = 32.0, 8, 1024.0


def by_one_run(comparison: Comparison, known: Measured) -> Stage | None:
    """The output beside one run of each kind, where more runs could not bring it within the limits; else None.

    Another device than the CPU may err as the CPU's own kernel does, so that this must be far nearer.
    """
    case = comparison.case
    if "smooth" not in comparison.classes or case.on_cpu or case.narrow or comparison.allowance.emulated:
        return None
    if _farthest(comparison, _first(comparison, known)) is None:
        return None
    evidence = comparison.evidence
    if not (evidence.perturbed(1) and evidence.float32(1) and evidence.float32_steps(1)):
        return None
    found = stages.by_steps(comparison, 1)
    farthest = _farthest(comparison, found[-1])
    theirs = None if farthest is None else steps.noise_of_cpu_result(comparison, found[0])
    if farthest is None or (theirs is not None and theirs.largest * FAR >= farthest):
        return None
    return found[0]


def _farthest(comparison: Comparison, stage: Stage) -> float | None:
    """The largest ratio of finite numbers, where that is far enough above the limit; None else. What is zero and no run
    moves is granted another share of what others do, and counts for nothing here."""
    told = np.isfinite(comparison.actual) & np.isfinite(comparison.expected) & (comparison.expected != 0)
    ratios = stage.noise.ratios[told]
    largest, limit = float(ratios.max(initial=0.0)), stage.limits.largest
    far = largest > FAR_ALONE * limit or np.count_nonzero(ratios > FAR * limit) >= MANY
    return largest if far else None


def by_all_runs(comparison: Comparison, known: Measured) -> Stage | None:
    """The last stage, where it shows that none before it is within its limits; else None."""
    limit = stages.limits_of(comparison).largest
    if comparison.case.on_cpu or not _first(comparison, known).noise.largest > FAR * limit:
        return None
    found = stages.by_steps(comparison, STAGES[-1])
    # Of other elements more may be granted in an earlier stage: of those that are zero and that no run moves.
    # So may be of those where the reference has no number.
    above = (found[-1].noise.ratios > found[-1].limits.largest) & (comparison.expected != 0)
    above &= np.isfinite(comparison.expected)
    if not above.any() or stages.chose_otherwise(comparison, comparison.evidence.perturbed(STAGES[-1])):
        return None
    return found[0]


def _first(comparison: Comparison, known: Measured) -> Stage:
    """The first stage, which needs no run; where that is far off the second, since one run may grant all to healthy
    numbers next to zero."""
    found = stages.in_turn(comparison, known)
    first = next(found)
    return next(found) if first.noise.largest > FAR * first.limits.largest else first
