"""References that round inside: a user's reference of float32 tensors that casts them to 16 bit.

Its run in float64 leaves such casts out, so that a function that rounds as it does seems wrong, and one that does not
seems right. Runs in its own dtypes tell. Each kernel rounds once in them, so that a fault of the CPU's excuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.arrays import same_bytes
from pytest_probe.numerics.dtypes import AnyArray, float_format, round_to
from pytest_probe.standards.noise import steps
from pytest_probe.standards.noise.standard import decided

# Runs in the reference's own dtypes; the first is on exact inputs.
RUNS = 4
# Elements that another order of sums takes across a tie between two 16-bit numbers, and how far, in units of what
# rounding moves an output by. Chosen: float32 errs by some 2^-22, and a 16-bit step is 2^-11 at least.
FEW, CROSSED = 0.02, 4.0


def beside_written(standard: Standard, comparison: Comparison, verdict: OutputVerdict) -> OutputVerdict:
    """The verdict compared with a reference that rounds inside: no error of what rounds as it does, and a warning of
    what leaves that out."""
    rounds = comparison.case.rounds
    if verdict.verdict not in ("pass", "error"):
        return verdict
    runs = comparison.evidence.narrow_steps(RUNS)
    if verdict.verdict == "pass":
        leaves_out = runs and not _of_written(standard, comparison, runs) and _leaves_out(standard, comparison, runs[0])
        words = f"leaves out the rounding to {rounds}"
        return replace(verdict, verdict="warning", reason=words) if leaves_out else verdict
    # What computes in float32 errs by its roundoff, whatever the arguments are.
    single = replace(comparison, roundoff=max(comparison.roundoff, float_format("float32").roundoff))
    found = _of_written(standard, single, runs) if runs else None
    if found is not None:
        return found
    own = comparison.evidence.reference_on_cpu()
    if own is not None and same_bytes(own, comparison.actual):
        words = f"has the bits of the reference in its own dtypes, which rounds to {rounds}"
    elif verdict.standard == "noise" and steps.unlike_composed_steps(comparison, decided(comparison, verdict)) == "":
        words = f"rounds otherwise than the reference, which rounds to {rounds}"
    else:
        return verdict
    return replace(verdict, verdict="warning", reason=f"{words}: {verdict.reason}", basis=None)


def _of_written(standard: Standard, comparison: Comparison, runs: Sequence[AnyArray]) -> OutputVerdict | None:
    """The verdict on an output that is what runs in the reference's own dtypes give, but for a few elements at ties."""
    nearest = allowed_scale.nearest_run(comparison.actual, list(runs))
    beside = _beside(comparison, comparison.actual, nearest)
    found = standard.judge(beside)
    passed = replace(found, verdict="pass", reason=f"rounds to {comparison.case.rounds}, as the reference does")
    if found.verdict == "pass":
        return passed
    spread = allowed_scale.spread_of(runs, comparison.expected, comparison.actual.dtype)
    if found.verdict != "error" or found.standard != "noise" or spread is None:
        return None
    stage = decided(beside, found)
    beyond = stage.noise.ratios > stage.limits.largest
    step = CROSSED * np.maximum(spread.size, allowed_scale.root_mean_square(spread.size))
    with np.errstate(invalid="ignore"):
        crossed = beyond & (np.abs(comparison.actual.astype(nearest.dtype) - nearest) <= step)
    others = noise_ratio.noise_of_ratios(np.where(crossed, 0.0, stage.noise.ratios), nearest, stage.noise.undecided)
    few = np.count_nonzero(crossed) <= FEW * crossed.size
    return replace(passed, worst=(), basis=None) if few and others.within(stage.limits) else None


def _leaves_out(standard: Standard, comparison: Comparison, run: AnyArray) -> bool:
    """Is what the reference gives in its own dtypes an error compared with its run in float64, and the output none?"""
    sides = round_to(run, comparison.actual.dtype), comparison.actual
    written, found = (standard.judge(_beside(comparison, side, comparison.expected)).verdict for side in sides)
    return written == "error" and found == "pass"


def _beside(comparison: Comparison, actual: AnyArray, expected: AnyArray) -> Comparison:
    """Other sides of the same output, which the CPU's own result does not excuse."""
    before = comparison.expected

    def moved(run: AnyArray) -> AnyArray:
        with np.errstate(invalid="ignore"):
            return np.where(expected == before, run, run + (expected - before))

    return replace(comparison, actual=actual, expected=expected, evidence=comparison.evidence.transformed(moved))
