"""The rules that the tools of the field judge by, each from an output's metrics to a verdict.

Thresholds on single elements (small_value, rtol, ...) are those of the convention under which the metrics were taken.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.tool_metrics import Measures

NARROW, WIDE = ("float16", "bfloat16"), ("float32", "float64")


class RuleVerdict(Struct, frozen=True):
    """What a rule finds in the metrics of one output. reason names the metric that decided, with its value and limit; a
    pass needs none."""

    verdict: Outcome
    reason: str = ""


PASS = RuleVerdict("pass")


def within(value: float | None, limit: float) -> bool:
    """value <= limit; a metric that does not apply is within, NaN is not."""
    return value is None or value <= limit


def first(*reasons: str) -> RuleVerdict:
    """An error with the first reason that is one."""
    found = next((reason for reason in reasons if reason), "")
    return RuleVerdict("error", found) if found else PASS


ABSOLUTE_RATIOS = {
    "inf_nan_error_ratio": "of the NaN and inf are not the reference's",
    "rel_error_ratio": "of the values that are not small are beyond rtol",
    "abs_error_ratio": "of the small values are beyond the absolute threshold",
}


def absolute_threshold(measures: Measures) -> RuleVerdict:
    """A relative limit for what is not small, an absolute one for what is, and none may be beyond."""
    return first(*(_beyond(measures, name, words) for name, words in ABSOLUTE_RATIOS.items()))


def _beyond(measures: Measures, name: str, words: str) -> str:
    share: float | None = getattr(measures, name)
    return "" if within(share, 0) else f"absolute threshold: {share:.3g} {words}; none may be"


def accumulative(measures: Measures, error_balance: float) -> RuleVerdict:
    """Absolute thresholds with one bound for values up to 1 and, relative, for larger ones; and errors to both sides
    in balance."""
    found = absolute_threshold(measures)
    if found.verdict == "error":
        return found
    balance = measures.error_balance
    return first("" if within(balance, error_balance) else f"error balance {balance:.3g}, limit {error_balance:.3g}")


def binary(measures: Measures) -> RuleVerdict:
    """Binary consistency: every element equals the reference, NaN never does."""
    if within(measures.binary_mismatch_ratio, 0):
        return PASS
    return RuleVerdict("error", f"binary: a share of {measures.binary_mismatch_ratio:.3g} differs; none may")


# The least share of elements with a relative error below 0.001.
THOUSANDTH_LEAST = 0.999


def thousandth(measures: Measures, least: float = THOUSANDTH_LEAST) -> RuleVerdict:
    """Of all elements, at least 99.9 % have a relative error below 0.001."""
    share = measures.thousandth_ratio
    if share is None or share >= least:
        return PASS
    return RuleVerdict("error", f"thousandth: {share:.5g} of the elements are within 0.001, at least {least} must be")


class UlpLimits(Struct, frozen=True):
    """The mean passes below `mean` (0: no mean does), the share beyond the threshold below `over_ratio`."""

    over_ratio: float
    mean: float = 0.0


FLOAT32_ULP_LIMITS = UlpLimits(over_ratio=0.05, mean=64.0)
ULP_NARROW = UlpLimits(over_ratio=0.001)


def ulp(measures: Measures, limits: UlpLimits, benchmark: Measures | None = None, floor: float = 0.0) -> RuleVerdict:
    """A mean, or a share of elements beyond a threshold; else no worse a share than the benchmark's.

    float32: mean below 64, or fewer than 5 % beyond 32 ULP. 16 bit: fewer than 0.1 % beyond 1 ULP. benchmark: another
    device's errors against the same reference, whose share counts as floor at least. A mean that is NaN or inf must be
    the benchmark's too.
    """
    mean, share = _number(measures.ulp_mean), _number(measures.ulp_over_ratio)
    if benchmark is not None and not _alike(mean, _number(benchmark.ulp_mean)):
        return RuleVerdict("error", f"ULP: mean {mean:.3g}, the benchmark's {_number(benchmark.ulp_mean):.3g}")
    if mean < limits.mean or share < limits.over_ratio:
        return PASS
    if benchmark is not None and share < max(_number(benchmark.ulp_over_ratio), floor):
        return PASS
    allowed = f"a share of {limits.over_ratio:g}" + (f", or a mean of {limits.mean:g}" if limits.mean else "")
    reason = f"ULP: mean {mean:.3g}, {share:.3g} of the elements beyond the threshold; below {allowed}"
    return RuleVerdict("error", reason)


def _number(value: float | None) -> float:
    return 0.0 if value is None else value


def _alike(mean: float, other: float) -> bool:
    finite = math.isfinite(mean) and math.isfinite(other)
    return finite or mean == other or (math.isnan(mean) and math.isnan(other))


COSINE, MAX_ABS = 0.99, 0.001
# A side with no larger magnitude counts as zero, and has no cosine.
ZERO = 2.0**-52


def preliminary(measures: Measures, dtype: str, *, nan_cosine_passes: bool = False) -> RuleVerdict:
    """The three-state status of msprobe's checker and its kin, decided without a benchmark.

    Cosine, then the largest absolute error, then shares of elements within a relative error: the first that decides
    ends it. So any tensor below 0.001 passes on its cosine alone.
    """
    cosine = cosine_trouble(measures, nan_passes=nan_cosine_passes)
    if cosine:
        return RuleVerdict("error", cosine)
    if measures.max_abs_error is not None and measures.max_abs_error < MAX_ABS:
        return PASS
    if dtype in NARROW:
        return _shares(measures, "hundredth_ratio", 0.01, "thousandth_ratio", 0.001)
    if dtype in WIDE:
        return _shares(measures, "thousandth_ratio", 0.001, "ten_thousandth_ratio", 0.0001)
    return PASS


def cosine_trouble(measures: Measures, *, nan_passes: bool) -> str:
    """Why the cosine is not above 0.99; "" where it is, or where there is none: for one element, or zeros twice."""
    distance = measures.cosine_distance
    if distance is not None:
        fine = 1 - distance > COSINE or (nan_passes and math.isnan(distance))
        return "" if fine else f"cosine {1 - distance:.6g}, must be above {COSINE}"
    actual, expected = measures.actual_magnitude, measures.expected_magnitude
    if measures.count == 1 or actual is None or expected is None or (actual <= ZERO) == (expected <= ZERO):
        return ""
    return f"all of the {'output' if actual <= ZERO else 'reference'} is zero, and the other side is not"


def _shares(measures: Measures, coarse: str, coarse_limit: float, fine: str, fine_limit: float) -> RuleVerdict:
    for name, limit in ((coarse, coarse_limit), (fine, fine_limit)):
        share = getattr(measures, name)
        if share is not None and not share > 1 - limit:
            reason = f"{share:.5g} of the elements are within {limit:g}, must be more than {1 - limit:g}"
            return RuleVerdict("error" if name == coarse else "warning", reason)
    return PASS


# The tools judge no share of zeros of fewer elements than these, and allow a difference below this one.
ZEROS_LEAST_ELEMENTS, ZEROS_MOST = 100, 0.1


def zeros(actual: AnyArray, expected: AnyArray) -> RuleVerdict:
    """Dropout as the tools judge it: by the share of zeros, within 10 %, and not at all below 100 elements."""
    if actual.size < ZEROS_LEAST_ELEMENTS:
        return PASS
    gap = abs(int((actual == 0).sum()) - int((expected == 0).sum())) / actual.size
    if gap < ZEROS_MOST:
        return PASS
    return RuleVerdict("error", f"the share of zeros is {gap:.3g} off the reference's, limit {ZEROS_MOST}")
