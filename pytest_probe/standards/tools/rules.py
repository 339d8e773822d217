"""The rules that the tools of the field judge by, each from an output's metrics to a verdict.

Thresholds on single elements (small_value, rtol, ...) are those of the convention under which the metrics were taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct

from pytest_probe.model.verdict import Outcome
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.table import RuleLimits


class RuleVerdict(Struct, frozen=True):
    """What a rule finds in the metrics of one output. reason names the metric that decided, with its value and limit; a
    pass needs none."""

    verdict: Outcome
    reason: str = ""


PASS = RuleVerdict("pass")


def within(value: float | None, limit: float) -> bool:
    """value <= limit; a metric that does not apply is within, NaN is not."""
    return value is None or value <= limit


ABSOLUTE_RATIOS = {
    "inf_nan_error_ratio": "of the NaN and inf are not the reference's",
    "rel_error_ratio": "of the values that are not small are beyond rtol",
    "abs_error_ratio": "of the small values are beyond the absolute threshold",
}


def absolute_threshold(measures: Measures, limits: RuleLimits | None = None) -> RuleVerdict:
    """A relative limit for what is not small, an absolute one for what is, and none may be beyond. The limits are those
    of the convention."""
    for name, words in ABSOLUTE_RATIOS.items():
        share: float | None = getattr(measures, name)
        if not within(share, 0):
            return RuleVerdict("error", f"absolute threshold: {share:.3g} {words}; none may be")
    return PASS


def accumulative(measures: Measures, limits: RuleLimits) -> RuleVerdict:
    """Absolute thresholds with one bound for values up to 1 and, relative, for larger ones; and errors to both sides
    in balance."""
    found = absolute_threshold(measures)
    if found.verdict == "error":
        return found
    balance, limit = measures.error_balance, limits["error_balance"]
    if within(balance, limit):
        return PASS
    return RuleVerdict("error", f"error balance {balance:.3g}, limit {limit:.3g}")


def binary(measures: Measures, limits: RuleLimits | None = None) -> RuleVerdict:
    """Binary consistency: every element equals the reference, NaN never does."""
    if within(measures.binary_mismatch_ratio, 0):
        return PASS
    return RuleVerdict("error", f"binary: a share of {measures.binary_mismatch_ratio:.3g} differs; none may")


def thousandth(measures: Measures, limits: RuleLimits) -> RuleVerdict:
    """A least share of all elements has a relative error below 0.001."""
    share, least = measures.thousandth_ratio, limits["ratio"]
    if share is None or share >= least:
        return PASS
    return RuleVerdict("error", f"thousandth: {share:.5g} of the elements are within 0.001, at least {least} must be")


def ulp(measures: Measures, limits: RuleLimits, benchmark: Measures | None = None, floor: float = 0.0) -> RuleVerdict:
    """A mean (0: none passes), or a share of elements beyond a threshold; else no worse a share than the benchmark's.

    benchmark: another device's errors against the same reference, whose share counts as floor at least. A mean that is
    NaN or inf must be the benchmark's too.
    """
    mean, share = _number(measures.ulp_mean), _number(measures.ulp_over_ratio)
    if benchmark is not None and not _alike(mean, _number(benchmark.ulp_mean)):
        return RuleVerdict("error", f"ULP: mean {mean:.3g}, the benchmark's {_number(benchmark.ulp_mean):.3g}")
    if mean < limits["mean"] or share < limits["over_ratio"]:
        return PASS
    if benchmark is not None and share < max(_number(benchmark.ulp_over_ratio), floor):
        return PASS
    allowed = f"a share of {limits['over_ratio']:g}" + (f", or a mean of {limits['mean']:g}" if limits["mean"] else "")
    reason = f"ULP: mean {mean:.3g}, {share:.3g} of the elements beyond the threshold; below {allowed}"
    return RuleVerdict("error", reason)


def _number(value: float | None) -> float:
    return 0.0 if value is None else value


def _alike(mean: float, other: float) -> bool:
    finite = math.isfinite(mean) and math.isfinite(other)
    return finite or mean == other or (math.isnan(mean) and math.isnan(other))


def accuracy_reached(measures: Measures, limits: RuleLimits) -> RuleVerdict:
    """ptdbg's: an error where cosine and largest absolute error are both beyond their limits, or one of them beyond its
    worst one. "Nan", where the cosine cannot be had (one element, one side zero), is a warning: the tool has not
    decided."""
    if measures.nonfinite_mismatch:
        return RuleVerdict("error", "NaN or inf stand at other places than in the reference")
    cosine, largest = _cosine(measures), measures.max_abs_error
    if cosine is None or largest is None or math.isnan(cosine) or math.isnan(largest):
        return RuleVerdict("warning", "the tool prints Nan: no cosine")
    both = cosine < limits["cosine"] and largest > limits["max_abs_error"]
    if both or cosine < limits["worst_cosine"] or largest > limits["worst_max_abs_error"]:
        return RuleVerdict("error", f"cosine {cosine:.6g}, largest absolute error {largest:.3g}")
    return PASS


def _cosine(measures: Measures) -> float | None:
    """1 where both sides are zero; None for a single element, and beside a side that is zero."""
    if measures.count == 1 or measures.cosine_distance is not None:
        return None if measures.cosine_distance is None else 1 - measures.cosine_distance
    both = (measures.actual_magnitude, measures.expected_magnitude)
    return 1.0 if both == (0, 0) else None


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


FORMULAS: Mapping[str, Callable[[Measures, RuleLimits], RuleVerdict]] = {
    "thousandth": thousandth,
    "binary": binary,
    "absolute_threshold": absolute_threshold,
    "ulp": ulp,
    "accumulative": accumulative,
    "accuracy_reached": accuracy_reached,
}
