"""Every metric of the field from one output and its reference, under a tool's own conventions.

Formulas after mindstudio-probe (1.0.4 to 26.2), PaddleAPEX, msprobe's MindSpore checker and ptdbg_ascend: they share
them and differ in what they call small, in what keeps a denominator from zero, and in what NaN and inf do.

Both arrays are read once, in blocks, in float64. How tools differ is data, a `Convention`, with the tools' bugs,
because old results are compared.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from pytest_probe.numerics.arrays import blocks
from pytest_probe.numerics.conventions import Convention
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.metrics import describe, rescaled
from pytest_probe.numerics.one_pass_totals import BLOCK, CLOSE_LIMITS, Totals

__all__ = ["Convention", "Measures", "measure"]


class Measures(Struct, frozen=True):
    """Metrics as Python's own numbers; None where one does not apply (a blank cell in the peers' files).

    d = actual, b = expected, N = count, err = |d - b| (the modulus of complex numbers), all in float64;
    rel = err / (|b| + eps). "ratio" is a share from 0 to 1. msprobe's column in brackets.

    count: elements. Where it is 0, all else is None.
    actual_magnitude, expected_magnitude: max |d| and max |b|; they explain a blank cosine.
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
    differ by more than rtol once clipped to the finite range [inf/nan错误率]; 0 without any.
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


def applying(measures: Measures) -> dict[str, float | int]:
    """The metrics that apply, by name."""
    values = asdict(measures)
    return {name: value for name, value in values.items() if value is not None}


def measure(actual: npt.ArrayLike, expected: npt.ArrayLike, convention: Convention) -> Measures:
    """All metrics of actual, in its own dtype, against expected (float64, or whatever the tool compares with).

    Raises ValueError where the shapes differ.
    """
    given, wanted = np.asarray(actual), np.asarray(expected)
    if given.shape != wanted.shape:
        raise ValueError(f"actual has shape {given.shape}, expected {wanted.shape}")
    if not given.size:
        return Measures(0)
    if given.dtype.kind in "iub":
        described = describe(given, wanted)
        return Measures(
            count=given.size,
            actual_magnitude=max(float(given.max()), -float(given.min())),
            expected_magnitude=max(float(wanted.max()), -float(wanted.min())),
            max_abs_error=described["max_abs"],
            binary_mismatch_ratio=described["mismatch"],
        )
    with np.errstate(all="ignore"):
        totals = Totals(given, wanted, convention)
        for pair in blocks(given, wanted, BLOCK):
            totals.add(*pair)
        return _summary(totals, _cosine_distance(totals, given, wanted))


def _summary(totals: Totals, cosine: float | None) -> Measures:
    rule, count = totals.rule, totals.count
    small = None if rule.small_value is None else totals.small
    shares = dict(zip(CLOSE_LIMITS, (number / count for number in totals.close), strict=True))
    return Measures(
        count=count,
        actual_magnitude=totals.actual_top,
        expected_magnitude=totals.expected_top,
        cosine_distance=cosine,
        max_abs_error=totals.error_top,
        max_rel_error=totals.relative_top,
        mean_rel_error=totals.relative_sum / totals.normal if totals.normal else 0.0,
        rmse=_rmse(totals),
        hundredth_ratio=shares[0.01],
        thousandth_ratio=shares[0.001],
        five_thousandth_ratio=shares[0.005],
        ten_thousandth_ratio=shares[0.0001],
        small_value_error_ratio=_share(totals.small_errors, small),
        error_balance=abs(totals.above - totals.below) / count if totals.parts == 1 else None,
        inf_nan_error_ratio=_share(totals.outside_errors, totals.outside if totals.judges_outside else None),
        rel_error_ratio=_share(totals.relative_errors, None if rule.rtol is None else totals.normal),
        abs_error_ratio=_share(totals.absolute_errors, small),
        ulp_max=totals.ulp_top * totals.ulp_unit if totals.ulp else None,
        ulp_mean=totals.ulp_sum * totals.ulp_unit / count if totals.ulp else None,
        ulp_over_ratio=totals.ulp_over / count if totals.ulp else None,
        binary_mismatch_ratio=totals.differing / count,
        nonfinite_mismatch=totals.unlike,
    )


def _share(part: int, whole: int | None) -> float | None:
    if whole is None:
        return None
    return part / whole if whole else 0.0


def _rmse(totals: Totals) -> float:
    if not totals.kept:
        return 0.0
    damping = totals.rule.rmse_damping
    return math.sqrt(totals.squares / totals.count * (totals.count / (totals.kept + damping) + damping))


def _cosine_distance(totals: Totals, actual: AnyArray, expected: AnyArray) -> float | None:
    rule, vectors = totals.rule, totals.vectors
    if rule.cosine_offset:
        return vectors.distance(rule.cosine_offset)
    if totals.count == 1 or totals.actual_top <= rule.zero or totals.expected_top <= rule.zero:
        return None
    if not (rule.alike or math.isfinite(totals.actual_top + totals.expected_top)):
        return math.nan
    return (vectors if vectors.exact else rescaled(actual, expected, BLOCK)).distance()
