"""Distances in units in the last place (ULP) of a dtype, measured from a float64 reference."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.dtypes import AnyArray, BoolArray, Float64Array, FloatFormat, float_format, round_to, widen


def ulp(reference: npt.ArrayLike, dtype: npt.DTypeLike) -> Float64Array:
    """The unit in the last place of a dtype at each reference value, of the same shape, in float64.

    2**(max(floor(log2 |r|), min_exponent) - precision + 1): at zero and among subnormals the smallest subnormal,
    beyond the largest finite number the ULP of the largest, NaN at inf and NaN. Complex: the larger of both parts'.
    Raises ValueError where dtype is no floating or complex one.
    """
    values = widen(reference)
    if values.dtype.kind == "c":
        return np.maximum(ulp(values.real, dtype), ulp(values.imag, dtype))
    spacing, finite = float_format(dtype).spacing(values), np.isfinite(values)
    return spacing if finite.all() else np.where(finite, spacing, np.nan)


def ulp_distance(actual: npt.ArrayLike, reference: npt.ArrayLike, dtype: npt.DTypeLike) -> Float64Array:
    """|actual - reference| in units in the last place of dtype at the reference, fractional, never NaN.

    0 where both are NaN, or inf of one sign, or where the reference lies beyond the largest finite number and actual
    is what the dtype puts there (inf, or NaN in formats without infinities); inf where just one of them is NaN or inf
    otherwise. Complex: the larger of both parts'. Raises ValueError where dtype is no floating or complex one.
    """
    values, expected = widen(actual), widen(reference)
    if "c" in (values.dtype.kind, expected.dtype.kind):
        return np.maximum(
            ulp_distance(values.real, expected.real, dtype), ulp_distance(values.imag, expected.imag, dtype)
        )
    layout = float_format(dtype)
    # Where the process flushes subnormal numbers float64's spacing at zero is zero.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        distance = np.abs(values - expected) / layout.spacing(expected)
        # One reduction finds every NaN and inf.
        if not np.isfinite(distance.max(initial=0.0)):
            nonfinite, penalty = nonfinite_distance(values, expected, layout)
            distance = np.where(nonfinite, penalty, np.where(values == expected, 0.0, distance))
    return np.asarray(distance)


def nonfinite_distance(
    actual: Float64Array, reference: Float64Array, layout: FloatFormat
) -> tuple[BoolArray, Float64Array]:
    """Where actual or reference is NaN or inf, and the distance there: 0 where they are alike, otherwise inf."""
    nonfinite = ~(np.isfinite(actual) & np.isfinite(reference))
    return nonfinite, np.where(alike(actual, layout.overflowed(reference)), 0.0, np.inf)


def alike(actual: Float64Array, expected: Float64Array) -> BoolArray:
    """Where both are the same value, NaN being like NaN and -0 like 0."""
    same: BoolArray = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return same


def truncated(expected: AnyArray, dtype: np.dtype) -> AnyArray:
    """float64 numbers cut towards zero to a dtype."""
    nearest = widen(round_to(expected, dtype))
    above = np.abs(nearest) > np.abs(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        below = widen(round_to(nearest - np.copysign(ulp(expected, dtype), nearest), dtype))
    return np.where(above, below, nearest)
