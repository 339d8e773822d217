"""The status that a release's table gives an output without a benchmark."""

from __future__ import annotations

import math

from pytest_probe.numerics.tool_metrics import Measures
from pytest_probe.standards.tools.release import Check, Status
from pytest_probe.standards.tools.rules import FORMULAS, PASS, RuleVerdict

# A side with no larger magnitude counts as zero, and has no cosine.
ZERO = 2.0**-52
# Within which relative error a share counts the elements.
WITHIN = {"hundredth_ratio": 0.01, "thousandth_ratio": 0.001, "ten_thousandth_ratio": 0.0001}
WITHIN |= {"five_thousandth_ratio": 0.005}
NAMES = {"max_abs_error": "largest absolute error"}


def status(how: Status, dtype: str, measures: Measures) -> RuleVerdict:
    """What the table's formula says, or the first of its checks that decides. Where none decides, the output passes."""
    if how.formula is not None:
        return FORMULAS[how.formula](measures, how.limits)
    for check in how.checks:
        if check.dtypes and dtype not in check.dtypes:
            continue
        trouble = _trouble(check, measures, nan_passes=how.nan_cosine == "pass")
        if trouble is None and how.missing == "error":
            return RuleVerdict("error", "the tool has no metrics for it")
        if trouble and check.then is None:
            return RuleVerdict(check.otherwise, trouble)
        if trouble == "" and check.then is not None:
            return RuleVerdict(check.then)
    return PASS


def _trouble(check: Check, measures: Measures, *, nan_passes: bool) -> str | None:
    """Why a metric is not as the check wants it; "" where it is, None where it does not apply."""
    if check.metric == "cosine":
        return _cosine_trouble(check, measures, nan_passes=nan_passes)
    value: float | None = getattr(measures, check.metric)
    if value is None or check.holds(value):
        return None if value is None else ""
    if check.metric in WITHIN:
        share = f"{value:.5g} of the elements are within {WITHIN[check.metric]:g}"
        return f"{share}, must be {'more' if check.side == 'above' else 'less'} than {check.limit:g}"
    return f"{NAMES.get(check.metric, check.metric)} {value:.3g}, must be {check.side} {check.limit}"


def _cosine_trouble(check: Check, measures: Measures, *, nan_passes: bool) -> str | None:
    """None for one element, and for zeros twice; a side of zeros alone is one."""
    distance = measures.cosine_distance
    if distance is not None:
        fine = check.holds(1 - distance) or (nan_passes and math.isnan(distance))
        return "" if fine else f"cosine {1 - distance:.6g}, must be {check.side} {check.limit}"
    actual, expected = measures.actual_magnitude, measures.expected_magnitude
    if measures.count == 1 or actual is None or expected is None or (actual <= ZERO) == (expected <= ZERO):
        return None
    return f"all of the {'output' if actual <= ZERO else 'reference'} is zero, and the other side is not"
