"""Every metric of the field from one output and its reference, under a tool's own conventions.

Formulas after mindstudio-probe (1.0.4 to 26.2), PaddleAPEX, msprobe's MindSpore checker and ptdbg_ascend: they share
them and differ in what they call small, in what keeps a denominator from zero, and in what NaN and inf do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_probe.numerics.convention import Convention
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, Float64Array, FloatFormat, float_format, round_to, widen
from pytest_probe.numerics.metrics import describe
from pytest_probe.numerics.peer_ulp import float8_distance, powers
from pytest_probe.numerics.ulp import nonfinite_distance, ulp_distance

__all__ = ["Convention", "Measures", "measure"]


@dataclass(frozen=True, slots=True)
class Measures:
    """Metrics as Python's own numbers; None where one does not apply (a blank cell in the peers' files).

    d = actual, b = expected, N = count, err = |d - b| (the modulus of complex numbers), all in float64;
    rel = err / (|b| + eps). "ratio" is a share from 0 to 1. msprobe's column in brackets.

    count: elements. Where it is 0, all else is None.
    actual_magnitude, expected_magnitude: max |d| and max |b|; they tell why a cosine is blank.
    cosine_distance: 1 - d.b / (|d| |b|) [余弦相似度 is 1 minus this], from 0 to 2, without cancellation for near
    vectors. None for one element, and where a side is zero (Convention.zero).
    max_abs_error: max err [最大绝对误差]. Exact for integers.
    max_rel_error, mean_rel_error: max and mean rel over normal elements [相对误差最大值, 相对误差平均值]; 0 where none
    is.
    rmse: root of the mean err^2 over normal elements [均方根误差], with Convention.rmse_damping.
    hundredth_ratio, thousandth_ratio, ten_thousandth_ratio: share of all N with rel < 0.01, 0.001, 0.0001 [双百指标,
    双千指标, 双万指标]; five_thousandth_ratio: rel < 0.005 (ptdbg's "Five Thousandths Err Ratio").
    small_value_error_ratio: share of the small elements with err > small_atol [小值域错误占比]; 0 where none is small.
    error_balance: |#(d > b) - #(d < b)| / N with b rounded to d's dtype first [误差均衡性]. None for complex.
    inf_nan_error_ratio: share of the elements where d, or b in d's dtype, is NaN or inf, that are not both NaN and
    differ by more than rtol once clipped to the finite range [inf/nan错误率]; 0 where there are none.
    rel_error_ratio: share of the normal elements with rel > rtol [相对误差错误率]; 0 where none is normal.
    abs_error_ratio: share of the small elements with err > absolute_atol [绝对误差错误率]; 0 where none is small.
    ulp_max, ulp_mean: of err in ULP [ULP误差最大值, ULP误差平均值]; ulp_over_ratio: share beyond ulp_threshold
    [ULP误差大于阈值占比].
    binary_mismatch_ratio: share with d != b, compared exactly and NaN unequal to NaN [二进制一致错误率].
    nonfinite_mismatch: number of elements where NaN or inf on one side is not the same on the other; a reference beyond
    the dtype's range is like what the dtype puts there.

    Integers and bool have count, magnitudes, max_abs_error and binary_mismatch_ratio only.
    """

    count: int
    actual_magnitude: float | None = None
    expected_magnitude: float | None = None
    cosine_distance: float | None = None
    max_abs_error: float | int | None = None
    max_rel_error: float | None = None
    mean_rel_error: float | None = None
    rmse: float | None = None
    hundredth_ratio: float | None = None
    thousandth_ratio: float | None = None
    five_thousandth_ratio: float | None = None
    ten_thousandth_ratio: float | None = None
    small_value_error_ratio: float | None = None
    error_balance: float | None = None
    inf_nan_error_ratio: float | None = None
    rel_error_ratio: float | None = None
    abs_error_ratio: float | None = None
    ulp_max: float | None = None
    ulp_mean: float | None = None
    ulp_over_ratio: float | None = None
    binary_mismatch_ratio: float | None = None
    nonfinite_mismatch: int | None = None


def measure(actual: npt.ArrayLike, expected: npt.ArrayLike, convention: Convention) -> Measures:
    """All metrics of actual, in its own dtype, against expected (float64, or whatever the tool compares with).

    Raises ValueError where the shapes differ.
    """
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
        err, left_out = np.where(finite, err, np.where(unlike, np.inf, 0.0)), ~finite
    rel = np.where(err == 0, 0.0, err / _denominators(np.abs(b), rule))
    rel = np.where(left_out, err, rel)
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
        inf_nan_error_ratio=_outside(a, b, rounded, unlike, top, rule),
        rel_error_ratio=None if rule.rtol is None else _share(normal & (rel > (rule.rtol or 0.0)), normal),
        abs_error_ratio=None if none else _share(small & (err > rule.absolute_atol), small),
        ulp_max=None if ulps is None else float(ulps.max()),
        ulp_mean=None if ulps is None else float(ulps.mean()),
        ulp_over_ratio=None if ulps is None else float(np.mean(ulps > rule.ulp_threshold)),
        binary_mismatch_ratio=float(np.mean(a != b)),
        nonfinite_mismatch=int(np.sum(unlike)),
    )


def _denominators(magnitude: Float64Array, rule: Convention) -> Float64Array:
    return np.asarray(magnitude + rule.eps * ((rule.eps_at == "all") | (magnitude == 0)))


def _unlike(a: AnyArray, b: AnyArray, layout: FloatFormat) -> BoolArray:
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        return _unlike(a.real, b.real, layout) | _unlike(a.imag, b.imag, layout)
    return np.asarray(nonfinite_distance(a, b, layout)[1] > 0) & ~(np.isfinite(a) & np.isfinite(b))


def _ulps(a: AnyArray, b: AnyArray, layout: FloatFormat, rule: Convention) -> Float64Array | None:
    if rule.ulp == "own":
        return ulp_distance(a, b, layout.name)
    if rule.ulp is None or a.dtype.kind == "c":
        return None
    if layout.name.startswith("float8"):
        return float8_distance(a, b)
    return np.asarray(np.abs(a - b) / powers(b, layout) * 2.0 ** (layout.precision - 1))


def _outside(
    a: AnyArray, b: AnyArray, rounded: AnyArray, unlike: BoolArray, top: float, rule: Convention
) -> float | None:
    if rule.alike:
        return _share(unlike, ~(np.isfinite(a) & np.isfinite(b)))
    if rule.rtol is None or a.dtype.kind == "c":
        return None
    gap = np.abs(np.clip(a, -top, top) - np.clip(rounded, -top, top))
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
    distance = min(2.0, float(np.sum(np.abs(first - second) ** 2)) / 2)
    if rule.cosine_offset:
        product = float(np.linalg.norm(a) * np.linalg.norm(b))
        return distance * product / (product + rule.cosine_offset)
    return distance
