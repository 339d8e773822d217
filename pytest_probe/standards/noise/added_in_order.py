"""Sums that a device adds one term after another in float32: they lose digits, and are no fault of the device.

Positive terms drift: whatever is added to a large sum is rounded alike. No limit covers that, since one that did would
let faults of the same size pass. Here the sums are made again, in such an order, and the device's errors must be those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics import noise_ratio
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, ulp, widen
from pytest_probe.numerics.float32_sums import Order
from pytest_probe.numerics.noise_ratio import Limits, Noise
from pytest_probe.standards.noise.summed_terms import summed_terms

# Orders of kernels that the framework has for the CPU: they count where such a kernel errs alike.
OF_CPU: tuple[Order, ...] = ("lanes", "threads")
ORDERS: tuple[Order, ...] = ("sequence", "two_lanes", "four_lanes", "warp", *OF_CPU)
# The share of an error that may be another one: how terms are rounded before they are added.
SHARE = 0.1
# Sums of fewer terms stay within the limits.
LEAST = 16
# Noise scales that a kernel of the CPU errs by before it is asked how it adds: other rounding stays below.
DRIFT = noise_ratio.RMS_LIMIT


class Added(Struct, frozen=True):
    """How an output was added up: the most terms of one element, the largest share of an element that it is off by, and
    what a pairwise sum of the same terms is off by there; None where that is not known."""

    terms: int
    error: float
    pairwise: float | None

    @property
    def description(self) -> str:
        found = f"adds {self.terms:,} terms one after another in float32: off by {self.error:.2g} of the result"
        return found if self.pairwise is None else f"{found}, a pairwise sum by {self.pairwise:.2g}"


def added_in_order(comparison: Comparison, noise: Noise, limits: Limits, scale: AnyArray) -> Added | None:
    """How the output was added up, where that explains each element above the limits and the others are within them.

    noise is that of the output compared with the rounding of its steps, with its limits; scale is A of each element.
    """
    terms, expected, actual = summed_terms(comparison).count, comparison.expected, widen(comparison.actual)
    # A sum of n terms is off by n roundoffs of all of them, which are no more than sqrt(n) times their root sum square.
    if not _may_be_sum(comparison) or not DRIFT < noise.largest <= float(terms) ** 1.5:
        return None
    with np.errstate(invalid="ignore"):  # of equal infinities
        error = actual - expected
    wrong = noise.ratios > min(limits.largest, limits.rms)
    for order in ORDERS:
        if order in OF_CPU and not _as_on_cpu(comparison, scale, wrong):
            return None
        alike = _alike(comparison, order, error)
        if alike is None or (wrong & ~alike).any():
            continue
        ratios = np.where(alike, 0.0, noise.ratios)
        others = noise_ratio.noise_of_ratios(ratios, expected, noise.undecided, comparison.weights)
        if others.within(limits):
            run = comparison.evidence.added("pairs")
            pairwise = None if run is None else _share(run - expected, expected, wrong)
            return Added(terms, _share(error, expected, wrong), pairwise)
    return None


def drifted(comparison: Comparison, runs: Sequence[AnyArray], scale: AnyArray) -> BoolArray:
    """Where the CPU's kernels in float32, which gave the runs, err no more than a sum of more than 1,024 terms does
    that is added one after another: how they add explains their error, and another device need not add so.

    scale: A without those runs.
    """
    found: BoolArray = np.zeros(scale.shape, dtype=bool)
    if not runs or not _is_long_sum(comparison):
        return found
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.max([np.abs(run - comparison.expected) for run in runs], axis=0)
        far = np.isfinite(error) & (error > DRIFT * scale)
        added = comparison.evidence.added("sequence") if far.any() else None
        if added is None:
            return found
        return np.asarray(far & (error <= (1 + SHARE) * np.abs(added - comparison.expected)))


def lost_on_cpu(comparison: Comparison, scale: AnyArray) -> AnyArray:
    """What the CPU's kernels in float32 are off by in the elements that `drifted` finds; 0 elsewhere."""
    single = comparison.evidence.single() if _is_long_sum(comparison) else None
    if single is None:
        return np.zeros(scale.shape)
    with np.errstate(invalid="ignore"):  # of equal infinities
        return np.where(drifted(comparison, [single], scale), single - comparison.expected, 0.0)


def _is_long_sum(comparison: Comparison) -> bool:
    return _may_be_sum(comparison) and summed_terms(comparison).count > noise_ratio.FAN_IN_START


def _may_be_sum(comparison: Comparison) -> bool:
    if comparison.elementwise or comparison.expected.dtype.kind != "f":
        return False
    return summed_terms(comparison).count >= LEAST


def _alike(comparison: Comparison, order: Order, error: AnyArray) -> BoolArray | None:
    """Which elements are off as the sum in that order is: to the same side, and as far to a tenth."""
    run = comparison.evidence.added(order)
    if run is None:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = run - comparison.expected
        half = ulp(comparison.expected, comparison.precision) / 2
        return np.asarray(np.abs(error - theirs) <= SHARE * np.abs(theirs) + half)


def _as_on_cpu(comparison: Comparison, scale: AnyArray, wrong: BoolArray) -> bool:
    """Does the framework's own kernel give the wrong elements, too?"""
    single = comparison.evidence.single()
    if single is None:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(widen(comparison.actual) - single) - ulp(comparison.expected, comparison.precision) / 2
        return bool((distance <= DRIFT * scale)[wrong].all())


def _share(error: AnyArray, expected: AnyArray, wrong: BoolArray) -> float:
    """The largest error of an element, of the elements that are wrong, as a share of it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.abs(error / expected)[wrong], initial=0.0))
