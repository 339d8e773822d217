"""What the difference of two arrays looks like, where nothing is known of the call that made them.

In: actual and expected, of one shape. Out: metrics, the worst elements, and a diagnosis as failing items have it.
Neither side is exact: the expected one is often computed in the dtype under test, and errs by roundings of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct
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
from pytest_probe.numerics.ulp import alike, truncated, ulp, ulp_distance
from pytest_probe.standards import diagnosis
from pytest_probe.standards.diagnosis.failed_output import (
    MIN_WRONG_ELEMENTS,
    NEARLY_ALL,
    Cause,
    FailedOutput,
    Recogniser,
    is_confined,
)
from pytest_probe.standards.diagnosis.precision import rounded_inside
from pytest_probe.standards.diagnosis.ranges import constant, not_finite
from pytest_probe.standards.exact import Exact, elements

# Distances, in ulps of the narrower dtype at the element or at the RMS, whichever is larger: what is much farther off
# is explained before what rounding may be part of.
_LEVELS = (64.0, 8.0, 2.0)
# A share of the RMS that sums in float32 are off by where large terms cancel, which a 16-bit ulp of a small sum is not.
_CANCELLED = 2.0**-18
# Ulps of float32 at the RMS that sums of some thousand terms in two orders differ by, in the mean and at most. Chosen:
# TF32 and bfloat16 inside are off by hundreds and thousands.
_ORDERS, _ORDERS_MOST = 8.0, 64.0
# Of the errors, how many more on one side than on the other, and by how many standard errors, have a direction.
_BALANCED, _SIGMAS = 0.35, 4.0
# Fewer errors, or numbers, have no spread to speak of.
_MANY = 32
# Elements whose bits are looked at, and the share of them whose last bit may be 0.
_LOOKED_AT, _SHORT = 1 << 16, 0.75


# Without what the last stage looks for in another way.
_FURTHER = tuple(cause for cause in diagnosis.CAUSES if cause is not rounded_inside)


class Explained(Struct, frozen=True):
    """equal is the share of elements with the same bits but for the dtype; ulp the largest, the mean and the 99th
    percentile of the distances in units of `narrow`, None for integers; bias the mean error in units of the RMS error.
    """

    narrow: str
    equal: float
    ulp: tuple[float, float, float] | None
    rmse: float
    bias: float
    diagnosis: Diagnosis | None
    worst: tuple[Element, ...]


def explain(actual: AnyArray, expected: AnyArray, beyond: BoolArray) -> Explained:
    """Two arrays of one shape, of numbers or bool; beyond marks elements that the assert does not take."""
    comparison = _comparison(actual, expected)
    differ = ~alike(widen(actual), widen(expected))
    if not differ.any():
        return Explained(comparison.precision.name, 1.0, None, 0.0, 0.0, None, ())
    with np.errstate(all="ignore"):
        wrong, found = _diagnosis(comparison, differ, beyond)
        gap = widen(actual) - comparison.expected
    finite = gap[np.isfinite(gap)]
    size, floating = _rms(finite), comparison.precision.kind not in "iub"
    # In ulps of the narrower dtype; of integers their differences.
    distances = (
        ulp_distance(comparison.actual, comparison.expected, comparison.precision)
        if floating
        else _distance(comparison)
    )
    three = None
    if floating:
        three = float(distances.max()), float(distances.mean()), float(np.quantile(distances, 0.99, method="nearest"))
    return Explained(
        comparison.precision.name,
        1 - float(np.mean(differ)),
        three,
        metrics.relative_rmse(actual, comparison.expected).value,
        float(np.abs(finite.mean())) / size if size else 0.0,
        replace(found, errors=f"{statistics.spread_line(distances)}{' ULP' if floating else ''}"),
        tuple(replace(each, ulp=float(distances[each.index])) for each in elements(comparison, wrong)),
    )


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


def _diagnosis(comparison: Comparison, differ: BoolArray, beyond: BoolArray) -> tuple[BoolArray, Diagnosis]:
    """Which elements are wrong, and what explains them; where nothing does, those that are in one place."""
    tried = []
    for wrong, allowed, causes in _stages(comparison, differ, beyond):
        verdict = OutputVerdict("", wrong.shape, comparison.actual.dtype.name, "error", Exact.name)
        found = diagnosis.diagnose_elements(Exact(), comparison, verdict, wrong, allowed, "quick", causes)
        tried.append((wrong, found))
        # Of a place that is wrong in part only the next stage has more.
        if found.cause and not found.where.endswith("of it"):
            if comparison.precision.kind in "iub" or not is_confined(found.where):
                return wrong, found
            # With the elements around that are less far off: of rows of zeros those whose right numbers are small.
            near = differ & ~(_distance(comparison) <= _LEVELS[-1] * _unit(comparison))
            where = regions.describe(near)
            if not is_confined(where):
                return wrong, found
            return near, replace(found, wrong=int(np.count_nonzero(near)), where=where)
    explained = (each for each in tried if each[1].cause)
    in_one_place = (each for each in tried if is_confined(each[1].where))
    return next(chain(explained, in_one_place), tried[-1])


def _stages(
    comparison: Comparison, differ: BoolArray, beyond: BoolArray
) -> Iterator[tuple[BoolArray, Float64Array, Sequence[Recogniser]]]:
    """Which elements are to be explained, how far off each may be, and what may explain them. What is nearer to the
    expected number than rounding is explained by nothing but rounding: all else would fit as well."""
    if not has_distinct(comparison.expected[differ], MIN_WRONG_ELEMENTS):
        # A few numbers are a factor, an offset and a limit of a few others, whatever made them.
        yield differ, np.zeros(differ.shape), (rounding, not_finite, zeros)
        return
    if comparison.precision.kind in "iub":
        yield differ, np.zeros(differ.shape), diagnosis.CAUSES
        return
    own = ulp(comparison.expected, comparison.precision)
    asked = beyond & differ
    yield asked if asked.any() else differ, own, (rounding,)
    distance, unit = _distance(comparison), _unit(comparison)
    before = 0
    for level in _LEVELS:
        wrong = differ & ~(distance <= level * unit)
        if np.count_nonzero(wrong) > before:
            before = int(np.count_nonzero(wrong))
            yield wrong, unit, _FURTHER
    yield differ, own, (rounded_inside,)


def _distance(comparison: Comparison) -> Float64Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(widen(comparison.actual) - comparison.expected), dtype=np.float64)


def _unit(comparison: Comparison) -> Float64Array:
    size = np.abs(comparison.expected)
    return ulp(np.fmax(size, _rms(size)), comparison.precision)


def _rms(values: Float64Array) -> float:
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(np.abs(finite) ** 2))) if finite.size else 0.0


def zeros(failed: FailedOutput) -> Cause | None:
    """Zeros where other numbers are expected, or the other way round."""
    only = any(not side[failed.wrong].any() for side in (failed.actual, failed.expected))
    return constant(failed) if only else None


def rounding(failed: FailedOutput) -> Cause | None:
    """Errors as small as roundings of the narrower dtype, and without direction."""
    comparison = failed.comparison
    if not failed.floating:
        return None
    narrow, gap = comparison.precision, np.abs(failed.actual - failed.expected)
    sides = ((failed.expected, failed.actual), (failed.actual, failed.expected))
    rounded = any(np.all(widen(round_to(exact, narrow)) == other) for exact, other in sides)
    rms = _rms(failed.expected)
    once = np.maximum(ulp(failed.expected, narrow), _CANCELLED * rms if narrow.itemsize < 4 else 0.0)
    if not np.all((gap <= once) | alike(failed.actual, failed.expected)):
        # Sums in the arithmetic's own precision.
        step = failed.comparison.roundoff * 2 * rms
        if failed.comparison.precision.itemsize < 4 or not np.isfinite(gap).all():
            return None
        if gap.max() > _ORDERS_MOST * step or _rms(gap) > _ORDERS * step or failed.confined or _directed(failed):
            return None
        name = failed.comparison.precision.name
        words = f"at most {gap.max() / step:.2g} ulp of the RMS, as sums in another order have"
        return Cause("precision", f"{name} roundings: {words}")
    if rounded or not _directed(failed):
        return Cause("precision", f"one {narrow.name} rounding explains it")
    if np.all(truncated(failed.expected, narrow) == failed.actual):
        return Cause("precision", f"cut towards zero to {narrow.name}, not rounded")
    differ = failed.actual != failed.expected
    larger = (np.abs(failed.actual) > np.abs(failed.expected))[differ]
    share, name = float(np.mean(larger)), failed.comparison.precision.name
    for words, found in (("away from", share), ("towards", 1 - share)):
        if found >= NEARLY_ALL:
            return Cause("precision", f"at most one step of {name}, always {words} zero: cut, or a factor near 1")
    return None


def _directed(failed: FailedOutput) -> bool:
    """Have errors one direction, or that of the numbers?"""
    gap = failed.actual - failed.expected
    differ = np.isfinite(gap) & (gap != 0)
    signs, expected = np.sign(gap[differ]), failed.expected[differ]
    means = (signs.mean(), (signs * np.sign(expected)).mean())
    return any(abs(float(mean)) > max(_BALANCED, _SIGMAS / np.sqrt(signs.size)) for mean in means)
