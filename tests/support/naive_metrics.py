"""Every metric by plain whole-array formulas: what the pass over blocks must equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.conventions import float8_distance, powers
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    Float64Array,
    FloatFormat,
    float_format,
    nonfinite_distance,
    round_to,
    ulp_distance,
    widen,
)
from pytest_probe.numerics.metrics import describe
from pytest_probe.numerics.tool_metrics import Convention, Measures


def naive(actual: npt.ArrayLike, expected: npt.ArrayLike, convention: Convention) -> Measures:
    given, wanted = np.asarray(actual), np.asarray(expected)
    if given.shape != wanted.shape:
        raise ValueError(f"actual has shape {given.shape}, expected {wanted.shape}")
    if not given.size:
        return Measures(0)
    with np.errstate(all="ignore"):
        if given.dtype.kind in "iub":
            return _discrete(given, wanted)
        return _floating(given.reshape(-1), wanted.reshape(-1), convention)


def _discrete(given: AnyArray, wanted: AnyArray) -> Measures:
    described = describe(given, wanted)
    return Measures(
        count=given.size,
        actual_magnitude=max(float(given.max()), -float(given.min())),
        expected_magnitude=max(float(wanted.max()), -float(wanted.min())),
        max_abs_error=described["max_abs"],
        binary_mismatch_ratio=described["mismatch"],
    )


def _floating(given: AnyArray, wanted: AnyArray, rule: Convention) -> Measures:
    a, b = widen(given), widen(wanted)
    layout = float_format(given.dtype)
    container = "float32" if rule.widens_bfloat16 and layout.name == "bfloat16" else given.dtype
    rounded = widen(round_to(b, container))
    top = 3.3895313892515355e38 if rule.widens_bfloat16 and layout.name == "bfloat16" else layout.max
    err, unlike, left_out = np.abs(a - b), _unlike(a, b, layout), np.zeros(a.shape, bool)
    finite = np.isfinite(a) & np.isfinite(b)
    if rule.alike:
        err, left_out = _likeness(a, b, layout), ~finite
    size = np.where(left_out, 0.0, np.abs(b))
    rel = np.where(err == 0, 0.0, err / _denominators(size, rule))
    both = np.isfinite(a) & np.isfinite(rounded)
    small, normal = np.zeros(a.shape, bool), np.ones(a.shape, bool)
    if rule.small_value is not None:
        small = both & (np.abs(b) <= rule.small_value)
        normal = both & ~small
    ulps = _ulps(a, b, layout, rule)
    none = rule.small_value is None
    return Measures(
        count=a.size,
        actual_magnitude=float(np.abs(a).max()),
        expected_magnitude=float(np.abs(b).max()),
        cosine_distance=_cosine(a, b, left_out, rule),
        max_abs_error=float(err.max()),
        max_rel_error=float(rel[normal].max()) if normal.any() else 0.0,
        mean_rel_error=float(rel[normal].mean()) if normal.any() else 0.0,
        rmse=_rmse(err, normal & ~left_out, rule),
        hundredth_ratio=float(np.mean(rel < 0.01)),
        thousandth_ratio=float(np.mean(rel < 0.001)),
        five_thousandth_ratio=float(np.mean(rel < 0.005)),
        ten_thousandth_ratio=float(np.mean(rel < 0.0001)),
        small_value_error_ratio=None if none else _share(small & (err > rule.small_atol), small),
        error_balance=_balance(a, rounded),
        inf_nan_error_ratio=_outside(a, b, rounded, unlike, top, container, rule),
        rel_error_ratio=None if rule.rtol is None else _share(normal & (rel > (rule.rtol or 0.0)), normal),
        abs_error_ratio=None if none else _share(small & (err > rule.absolute_atol), small),
        ulp_max=None if ulps is None else float(ulps.max()),
        ulp_mean=None if ulps is None else float(ulps.mean()),
        ulp_over_ratio=None if ulps is None else float(np.mean(ulps > rule.ulp_threshold)),
        binary_mismatch_ratio=float(np.mean(a != b)),
        nonfinite_mismatch=int(np.sum(unlike)),
    )


def _likeness(a: AnyArray, b: AnyArray, layout: FloatFormat) -> Float64Array:
    if a.dtype.kind == "c":
        return np.hypot(_likeness(a.real, b.real, layout), _likeness(a.imag, b.imag, layout))
    finite = np.isfinite(a) & np.isfinite(b)
    return np.where(finite, np.abs(a - b), np.where(_unlike(a, b, layout), np.inf, 0.0))


def _denominators(magnitude: Float64Array, rule: Convention) -> Float64Array:
    return np.asarray(magnitude + rule.eps * ((rule.eps_at == "all") | (magnitude == 0)))


def _unlike(a: AnyArray, b: AnyArray, layout: FloatFormat) -> BoolArray:
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        return _unlike(a.real, b.real, layout) | _unlike(a.imag, b.imag, layout)
    return np.asarray(nonfinite_distance(a, b, layout)[1] > 0) & ~(np.isfinite(a) & np.isfinite(b))


def _ulps(a: AnyArray, b: AnyArray, layout: FloatFormat, rule: Convention) -> Float64Array | None:
    if rule.ulp is None or (rule.ulp == "exponent" and a.dtype.kind == "c"):
        return None
    if a.dtype.kind == "c":
        real = _ulps(a.real.copy(), b.real.copy(), layout, rule)
        imaginary = _ulps(a.imag.copy(), b.imag.copy(), layout, rule)
        assert real is not None
        assert imaginary is not None
        return np.maximum(real, imaginary)
    if rule.ulp == "exponent" and layout.name.startswith("float8"):
        return float8_distance(a, np.where(np.isfinite(a) & np.isfinite(b), b, 0.0) if rule.alike else b)
    if rule.ulp == "own" and rule.alike:
        return ulp_distance(a, b, layout.name)
    err = _likeness(a, b, layout) if rule.alike else np.abs(a - b)
    if rule.ulp == "own":
        return np.asarray(err / layout.spacing(b))
    wanted = np.where(np.isfinite(a) & np.isfinite(b), b, 0.0) if rule.alike else b
    return np.asarray(err / powers(wanted, layout, np.empty(b.shape)) * 2.0 ** (layout.precision - 1))


def _outside(
    a: AnyArray, b: AnyArray, rounded: AnyArray, unlike: BoolArray, top: float, container: Any, rule: Convention
) -> float | None:
    if rule.alike:
        return _share(unlike, ~(np.isfinite(a) & np.isfinite(b)))
    if rule.rtol is None or a.dtype.kind == "c":
        return None
    gap = np.abs(np.clip(a, -top, top) - np.clip(rounded, -top, top))
    gap = np.where(gap > float_format(container).max, np.inf, gap)
    agreed = (gap / _denominators(np.abs(b), rule) <= rule.rtol) | (np.isnan(a) & np.isnan(rounded))
    outside = ~(np.isfinite(a) & np.isfinite(rounded))
    return _share(outside & ~agreed, outside)


def _balance(a: AnyArray, rounded: AnyArray) -> float | None:
    if a.dtype.kind == "c":
        return None
    return abs(int(np.sum(a > rounded)) - int(np.sum(a < rounded))) / a.size


def _share(part: BoolArray, whole: BoolArray) -> float:
    return float(np.sum(part) / np.sum(whole)) if whole.any() else 0.0


def _rmse(err: Float64Array, kept: BoolArray, rule: Convention) -> float:
    number, damping = int(np.sum(kept)), rule.rmse_damping
    if not number:
        return 0.0
    mean = float(np.sum(np.where(kept, err, 0.0) ** 2)) / err.size
    return float(np.sqrt(mean * (err.size / (number + damping) + damping)))


def _cosine(a: AnyArray, b: AnyArray, left_out: BoolArray, rule: Convention) -> float | None:
    top, reference_top = float(np.abs(a).max()), float(np.abs(b).max())
    if not rule.cosine_offset and (a.size == 1 or top <= rule.zero or reference_top <= rule.zero):
        return None
    a, b = np.where(left_out, 0.0, a), np.where(left_out, 0.0, b)
    first, second = a.astype(np.complex128) / (np.abs(a).max() or 1.0), b / (np.abs(b).max() or 1.0)
    first, second = first / (np.linalg.norm(first) or 1.0), second / (np.linalg.norm(second) or 1.0)
    if not (np.any(first) and np.any(second)) and not rule.cosine_offset:
        return None
    distance = float(np.minimum(2.0, np.sum(np.abs(first - second) ** 2) / 2))
    if rule.cosine_offset:
        product = float(np.linalg.norm(a) * np.linalg.norm(b))
        return distance * product / (product + rule.cosine_offset)
    return distance
