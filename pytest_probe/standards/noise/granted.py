"""What an output passes by that is neither the noise of its inputs nor its last rounding: how large it is, in words."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import GRANTED, UNDECIDED, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.numerics.noise_ratio import Spread, root_mean_square
from pytest_probe.numerics.ulp import ulp
from pytest_probe.standards.noise.stages import BETWEEN_STEPS, EACH_STEP, noise_of

# A share of the result, and ulps, that both are a warning: healthy bfloat16 is off by up to 4.6 ulp, which are 2.7 %.
WARNED, ULPS = 0.01, 8.0
# A share that is all of the result where half of the elements are off by more: zeros would pass as well.
ALL = 0.5


def with_grant(comparison: Comparison, verdict: OutputVerdict) -> OutputVerdict:
    """The verdict with the size of what 16-bit steps, the CPU's kernel or sums that are cut explain, beyond one ulp of
    the element, or of the output's RMS where that is larger; a warning where it is a large share of the result."""
    if verdict.verdict != "pass" or not (verdict.reason or verdict.metrics.get("scale_from") == BETWEEN_STEPS):
        return verdict
    sizes = np.abs(comparison.expected)
    finite = np.where(np.isfinite(sizes), sizes, 0.0)
    sizes = np.maximum(finite, root_mean_square(finite))
    units, shares = (_beyond(comparison, unit) for unit in (ulp(sizes, comparison.precision), sizes))
    # An overflow of a few elements is said already, and has no size.
    most, share = (float(np.max(found, initial=0.0, where=np.isfinite(found))) for found in (units, shares))
    everywhere = bool(np.median(shares) > ALL)
    if most <= 1 and not everywhere:
        return verdict
    by = verdict.reason or BETWEEN_STEPS
    size = f"{most:,.3g} ulp, {share:.2g} of the result"
    found = replace(verdict, metrics={**verdict.metrics, GRANTED: f"{size}, by {by}"})
    # Where a formula of the framework's own, rounded at each step, gives the output, no more than that is granted.
    known = verdict.reason.startswith(EACH_STEP)
    if (known or share <= WARNED or most <= ULPS) and not everywhere:
        return found
    words = f"off by {size}; only {by} explains it"
    if everywhere:
        words = f"{UNDECIDED}nothing was judged: steps in {comparison.precision.name} overflow or vanish; {words}"
    return replace(found, verdict="warning", reason=words)


def _beyond(comparison: Comparison, unit: AnyArray) -> AnyArray:
    """What each element is off by beyond its last rounding, in these units; inf where it overflows."""
    ratios = noise_of(comparison, Spread.of(unit), floor=0.0).ratios
    return np.where(np.isfinite(widen(comparison.actual)) | (ratios == 0), ratios, np.inf)
