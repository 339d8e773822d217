"""What the difference of two arrays looks like, where nothing is known of the call that made them.

In: actual and expected, of one shape. Out: metrics, the worst elements, and a diagnosis as failing items have it.
Neither side is exact: the expected one is often computed in the dtype under test, and errs by roundings of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import ComparedCase, Comparison, Evidence
from pytest_probe.model.run import BoundCall
from pytest_probe.model.verdict import Diagnosis, Element, OutputVerdict
from pytest_probe.numerics import metrics, regions, statistics
from pytest_probe.numerics.dtypes import (
    NARROW_DTYPES,
    WIDE_DTYPES,
    AnyArray,
    BoolArray,
    Float64Array,
    float_format,
    is_complex,
    is_floating,
    numpy_dtype,
    round_to,
    widen,
)
from pytest_probe.numerics.statistics import has_distinct
from pytest_probe.numerics.ulp import alike, ulp, ulp_distance
from pytest_probe.standards import diagnosis
from pytest_probe.standards.diagnosis.failed_output import (
    MIN_WRONG_ELEMENTS,
    NEARLY_ALL,
    Cause,
    FailedOutput,
    Recogniser,
    is_confined,
)
from pytest_probe.standards.diagnosis.precision import one_step, rounded_inside
from pytest_probe.standards.diagnosis.ranges import constant, not_finite
from pytest_probe.standards.exact import Exact, elements

# Ulps of the narrower dtype, at the element or at the RMS, whichever is larger: what is farther off is no rounding.
_FAR = 2.0
# Ulps of the arithmetic's dtype at the RMS that sums of some thousand terms in two orders differ by at most. Chosen:
# TF32 and bfloat16 inside are off by hundreds and thousands.
_ORDERS = 64.0
# Of the errors, how many more on one side than on the other, and by how many standard errors, have a direction.
_BALANCED, _SIGMAS = 0.35, 4.0
# Elements whose bits are looked at, how many have bits to speak of, and the share of them whose last bit may be 0.
_LOOKED_AT, _MANY, _SHORT = 1 << 16, 32, 0.75

# Causes of what is far off, whose middle is no measure of rounding.
_FURTHER = tuple(cause for cause in diagnosis.CAUSES if cause is not rounded_inside)


def explain(actual: AnyArray, expected: AnyArray) -> tuple[Diagnosis | None, list[str], tuple[Element, ...]]:
    """What the difference of two arrays of one shape, of numbers or bool, looks like, None without one; lines
    that say how large it is; and the worst elements."""
    comparison = _comparison(actual, expected)
    precision, differ = comparison.precision, ~alike(widen(actual), widen(expected))
    if not differ.any():
        return None, [], ()
    with np.errstate(all="ignore"):
        wrong, found = _diagnosis(comparison, differ)
        gap = widen(actual) - comparison.expected
    finite = gap[np.isfinite(gap)]
    size, rmse = _rms(finite), metrics.relative_rmse(actual, comparison.expected).value
    # The mean error in units of the RMS error.
    bias = float(np.abs(finite.mean())) / size if size else 0.0
    equal = 100 * (1 - float(np.mean(differ)))
    lines = [f"equal: {equal:.3g} %; relative RMSE {rmse:.3g}; bias {bias:.2g} of the RMS error"]
    # In ulps of the narrower dtype; of integers their differences.
    distances, unit = np.abs(gap), ""
    if precision.kind not in "iub":
        distances, unit = ulp_distance(comparison.actual, comparison.expected, precision), " ULP"
        most = np.quantile(distances, 0.99, method="nearest")
        lines.append(
            f"ULP of {precision.name}: largest {distances.max():.4g}, mean {distances.mean():.4g}, "
            f"99 % at most {most:.4g}"
        )
    if differ.size > 1:
        lines.append(f"error: {statistics.spread_line(distances)}{unit}")
    worst = elements(comparison, wrong)
    return found, lines, tuple(replace(each, ulp=float(distances[each.index])) for each in worst)


def _comparison(actual: AnyArray, expected: AnyArray) -> Comparison:
    """As a standard has one, of a call with no arguments."""
    floats = [held_dtype(side) for side in (actual, expected) if is_floating(side.dtype) or is_complex(side.dtype)]
    if floats and len(floats) < 2:
        actual = actual.astype(expected.dtype if is_floating(expected.dtype) else actual.dtype)
    precision = min(floats, key=lambda dtype: float_format(dtype).precision) if floats else actual.dtype
    wide = all(dtype in WIDE_DTYPES for dtype in floats)
    return Comparison(
        name="",
        case=ComparedCase(BoundCall("", "", False, False, {}, {}, {}), frozenset(), "forward", "", False),
        actual=actual,
        expected=widen(expected),
        precision=precision,
        roundoff=2.0**-53 if wide else 2.0**-24,
        evidence=Evidence(),
    )


def held_dtype(side: AnyArray) -> np.dtype[Any]:
    """The dtype whose numbers an array holds: bfloat16 or float16 where a wider one was made of it, as tests do to
    compare. Whole and other short numbers are no sign of that: of those made of 16 bit half need the last bit."""
    values = side.ravel()[:: max(1, side.size // _LOOKED_AT)]
    if not is_floating(side.dtype) or side.dtype.itemsize <= 2:
        return side.dtype
    values = values[np.isfinite(values) & (values != 0)].astype(np.float64)
    if values.size < _MANY:
        return side.dtype
    for dtype in map(numpy_dtype, NARROW_DTYPES):
        # Zeros of the last bit: the multiples of two ulps.
        steps = values / ulp(values, dtype)
        if np.all(steps == np.rint(steps)) and np.mean(steps % 2 == 0) < _SHORT:
            return dtype
    return side.dtype


def _diagnosis(comparison: Comparison, differ: BoolArray) -> tuple[BoolArray, Diagnosis]:
    """Which elements are wrong, and what explains them: rounding, or the first cause of the elements that are farther
    off."""
    floating = comparison.precision.kind not in "iub"
    own = ulp(comparison.expected, comparison.precision) if floating else np.zeros(differ.shape)
    stages: list[tuple[BoolArray, Float64Array, Sequence[Recogniser]]] = [(differ, own, (rounding,))]
    if has_distinct(comparison.expected[differ], MIN_WRONG_ELEMENTS):
        unit = np.maximum(own, ulp(_rms(comparison.expected), comparison.precision)) if floating else own
        far = differ & ~(np.abs(widen(comparison.actual) - comparison.expected) <= _FAR * unit)
        stages += [(far, unit, _FURTHER)] if far.any() else []
        # What is nearer has the form of many causes by chance.
        stages += [(differ, own, (one_step, rounded_inside))]
    else:
        # A few numbers are a factor, an offset and a limit of a few others, whatever made them.
        stages += [(differ, own, (not_finite, zeros))]
    tried = []
    for wrong, allowed, causes in stages:
        verdict = OutputVerdict("", wrong.shape, comparison.actual.dtype.name, "error", Exact.name)
        found = diagnosis.diagnose_elements(Exact(), comparison, verdict, wrong, allowed, "quick", causes)
        if found.cause:
            return wrong, found
        tried.append((wrong, found))
    return next((each for each in tried if is_confined(each[1].where)), tried[-1])


def _rms(values: Float64Array) -> float:
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0


def zeros(failed: FailedOutput) -> Cause | None:
    """Zeros where other numbers are expected, or the other way round."""
    only = any(not side[failed.wrong].any() for side in (failed.actual, failed.expected))
    return constant(failed) if only else None


def rounding(failed: FailedOutput) -> Cause | None:
    """Errors as small as roundings of the narrower dtype, or of sums in another order, and without direction."""
    narrow, roundoff = failed.comparison.precision, failed.comparison.roundoff
    if not failed.floating:
        return None
    error = np.where(alike(failed.actual, failed.expected), 0.0, failed.actual - failed.expected)
    step = 2 * roundoff * _rms(failed.expected)
    once = (error == 0) | (np.abs(error) <= ulp(failed.expected, narrow))
    if not np.all(once | (np.abs(error) <= _ORDERS * step)):
        return None
    sides = ((failed.expected, failed.actual), (failed.actual, failed.expected))
    if not any(np.all(widen(round_to(exact, narrow)) == other) for exact, other in sides):
        # A direction up or down, or to or from zero.
        signs, expected = np.sign(error[error != 0]), failed.expected[error != 0]
        means = (signs.mean(), (signs * np.sign(expected)).mean())
        one_sided = max(abs(float(mean)) for mean in means)
        if one_sided > max(_BALANCED, _SIGMAS / np.sqrt(signs.size)):
            words = f"at most one step of {narrow.name}, always to one side: cut, or a factor near 1"
            small = once.all() and one_sided >= 2 * NEARLY_ALL - 1
            return one_step(failed) or (Cause("precision", words) if small else None)
    # A few results near zero are no place, where others differ elsewhere.
    several = failed.confined or np.count_nonzero(~once) > regions.FEW
    if several and not once.all() and is_confined(regions.describe(~once)):
        return None
    if once.all() or narrow.itemsize < 4:
        return Cause("precision", f"one {narrow.name} rounding explains it")
    words = f"at most {np.abs(error).max() / step:.2g} ulp of the RMS, as sums in another order have"
    return Cause("precision", f"{narrow.name} roundings: {words}")
