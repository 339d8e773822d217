"""The smallest errors that a judge would have found in an output that passed, from what it measured anyway; and what an
output passes by that is neither the noise of its inputs nor its last rounding.

An error is found where it leaves a noise ratio above a limit: an error e of each element where the RMS of e / A is, one
element where e / A is above the largest, A being the allowed scale. A passing output is judged without runs, or with
few, and one that errs with all. So A has to be foreseen: from the spread of the runs that were made, or in units of
u_c |R| without any. The factors below are medians over cases/gpt and a CNN in three dtypes;
`python benchmarks/sensitivity.py` prints how often the forecast is within a factor of 2 of what spoiled outputs show.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import GRANTED, UNDECIDED, Detects, OutputVerdict
from pytest_probe.numerics import allowed_scale, noise_ratio
from pytest_probe.numerics.allowed_scale import Spread, root_mean_square
from pytest_probe.numerics.dtypes import AnyArray, FloatFormat, float_format, ulp, widen
from pytest_probe.numerics.metrics import dot
from pytest_probe.standards.exact import row_of
from pytest_probe.standards.noise import stages
from pytest_probe.standards.noise.explanation import SINGLE, Stage
from pytest_probe.standards.noise.stages import BETWEEN_STEPS, EACH_STEP, INSIDE_LIMITS, noise_of
from pytest_probe.standards.noise.summed_terms import Terms

# S of all runs, in u_c RMS(R): of a sum, of one with few elements, of one operand element by element (several move an
# element independently, so that squares add), of one element.
OF_SUM, OF_FEW, OF_TENSOR, OF_ONE = 2.7, 1.8, 1.8, 1.3
FEW = 64
# How much larger S is with all runs than with the first ones: where the call's steps are few, and where they are many.
GROWTH, GROWTH_OF_STEPS = 2.0, 3.5
# S of runs that round inside a kernel, in roundoffs of the dtype.
INSIDE = 2.2
# In 16 bit a kernel with so many operands rounds between its steps, and so does a division by a number: errors that
# this hides, in ulps and roundoffs, where steps give all of the output.
OPERANDS, STEPS_ELEMENT, STEPS_ROW, STEPS_SCALE = 3, 5.0, 4.0, 1.8
# One element's S is above the RMS of all; of a row the largest element decides, whose ulp is larger.
ALONE, ROW = 1.4, 0.7
# A mean shift of half a noise scale is found in so many elements.
BIASED = 150
# Half an ulp, as a share of the number that is rounded: the mean of 0.5 to 1 roundoffs.
HALF_ULP = 0.75


def detects_of(comparison: Comparison, stage: Stage, terms: Terms) -> Detects:
    """Those of an output that passed by the noise rule in this stage."""
    form = float_format(comparison.precision)
    rms = _rms(comparison.expected)
    if not stage.noise.count or not rms:
        return Detects(None, 1.0, 1.0 if row_of(comparison.actual) else None)
    narrow, elementwise, count = form.precision < SINGLE, comparison.elementwise, stage.noise.count
    largest, limit, allowed, biased = _granted(comparison, stage, terms, form, rms)
    unit = math.ldexp(1.0, max(math.frexp(rms)[1] - 1, form.min_exponent) - form.precision + 1)
    roundoff, found, units = form.roundoff, min(limit, largest) * allowed / rms, allowed / unit
    if biased and count > BIASED:
        found = min(found, allowed / rms / 2)
    scale = max(roundoff, found if narrow else found + HALF_ULP * roundoff)
    element, row = max(1.0, 0.5 + (ALONE if elementwise else 1.0) * largest * units), None
    if extent := row_of(comparison.actual):
        row = max(1.0, 0.5 + ROW * min(largest, limit * math.sqrt(count / extent)) * units)
    forward_here = comparison.case.on_cpu and comparison.case.direction == "forward"
    several = _operands(comparison, np.ndarray, float) >= OPERANDS or _divides_by_number(comparison)
    if narrow and elementwise and stage.source != BETWEEN_STEPS and forward_here and several:
        steps = _steps_share(comparison, rms)
        scale, element = max(scale, STEPS_SCALE * steps * roundoff), max(element, STEPS_ELEMENT * steps)
        row = None if row is None else max(row, STEPS_ROW * steps)
    stated = scale if scale <= 1 else None
    if terms.assumed or terms.count < 2:
        return Detects(stated, element, row)
    return Detects(stated, element, row, terms.count, scale * terms.count <= 1)


def _granted(
    comparison: Comparison, stage: Stage, terms: Terms, form: FloatFormat, rms: float
) -> tuple[float, float, float, bool]:
    """The limits of the largest and the RMS noise ratio, their scale, and whether a mean shift counts."""
    largest, limit = stage.limits.largest, stage.limits.rms
    least = allowed_scale.least_allowed(form)
    size = None if stage.spread is None else _rms(stage.spread.size)
    narrow = form.precision < SINGLE
    if narrow and stage.source == BETWEEN_STEPS and size is not None:
        return largest, limit, max(size, least), True
    if narrow and comparison.case.on_cpu and stages.rounds_inside(comparison):
        usual = noise_ratio.usual_limits(comparison.elementwise).rms
        return (
            min(largest, INSIDE_LIMITS.largest),
            limit * INSIDE_LIMITS.rms / usual,
            INSIDE * form.roundoff * rms,
            True,
        )
    unit = comparison.roundoff * rms
    if size is not None:
        many = comparison.elementwise or terms.assumed
        return largest, limit, max(unit, (GROWTH_OF_STEPS if many else GROWTH) * size, least), False
    count = stage.noise.count
    if comparison.elementwise:
        factor = OF_ONE if count == 1 else OF_TENSOR * math.sqrt(_operands(comparison, np.ndarray, float))
    else:
        factor = OF_FEW if count < FEW else OF_SUM
    return largest, limit, max(factor * unit, least), False


def _operands(comparison: Comparison, *kinds: type) -> int:
    given = comparison.call.given.values()
    count = len([value for value in given if isinstance(value, kinds)])
    return max(1, count + (comparison.direction == "backward"))


def _divides_by_number(comparison: Comparison) -> bool:
    """Such a kernel multiplies by a reciprocal."""
    call = comparison.call
    return "divides" in comparison.classes and isinstance(call.argument("other"), (int, float))


def _steps_share(comparison: Comparison, rms: float) -> float:
    """What steps give to the output, of its RMS: little where a call adds a small product to its first operand."""
    first = comparison.call.given.get("input")
    if _divides_by_number(comparison) or not isinstance(first, np.ndarray) or first.shape != comparison.expected.shape:
        return 1.0
    with np.errstate(all="ignore"):
        return min(1.0, _rms(comparison.expected - widen(first)) / rms)


def _rms(values: AnyArray) -> float:
    """The RMS of the finite elements."""
    flat = np.ascontiguousarray(values).reshape(-1)
    parts = flat.view(flat.real.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        power = dot(parts, parts)
        if 0 < power < math.inf:
            return math.sqrt(power / flat.size)
        return allowed_scale.root_mean_square(np.abs(flat[np.isfinite(flat)])) if flat.any() else 0.0


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
    # What each element is off by beyond its last rounding, in ulps and as a share; inf where it overflows.
    both = [Spread.of(unit) for unit in (ulp(sizes, comparison.precision), sizes)]
    beyond = [noise_of(comparison, each, share=0.0).ratios for each in both]
    whole = np.isfinite(widen(comparison.actual))
    units, shares = (np.where(whole | (ratios == 0), ratios, np.inf) for ratios in beyond)
    # An overflow of a few elements is said already, and has no size.
    most, share = (float(np.max(found, initial=0.0, where=np.isfinite(found))) for found in (units, shares))
    everywhere = bool(np.median(shares) > ALL)
    if most <= 1 and not everywhere:
        return verdict
    by = verdict.reason or BETWEEN_STEPS
    size = f"{most:,.3g} ulp, {share:.2g} of the result"
    found = replace(verdict, metrics={**verdict.metrics, GRANTED: f"{size}, by {by}"})
    # Where a formula of the framework's own, rounded at each step, gives the output, no more than that is granted. On
    # the CPU it is that of an accelerator's kernels.
    known = verdict.reason.startswith(EACH_STEP) and not comparison.case.on_cpu
    if (known or share <= WARNED or most <= ULPS) and not everywhere:
        return found
    words = f"off by {size}, explained by {by} alone"
    if everywhere:
        words = f"{UNDECIDED}nothing was judged: steps in {comparison.precision.name} overflow or vanish; {words}"
    return replace(found, verdict="warning", reason=words)
