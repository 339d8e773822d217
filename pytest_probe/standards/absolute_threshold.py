"""Absolute thresholds: a relative limit for what is not small, an absolute one for what is, and none may be beyond.

The thresholds are the convention's under which the metrics were taken (`rtol`, `small_value`, `absolute_atol`).
"""

from __future__ import annotations

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.ruling import Ruling, first, within

RATIOS = {
    "inf_nan_error_ratio": "of the NaN and inf are not the reference's",
    "rel_error_ratio": "of the values that are not small are beyond rtol",
    "abs_error_ratio": "of the small values are beyond the absolute threshold",
}


def absolute_threshold(measures: Measures) -> Ruling:
    return first(*(_beyond(measures, name, words) for name, words in RATIOS.items()))


def _beyond(measures: Measures, name: str, words: str) -> str:
    share: float | None = getattr(measures, name)
    return "" if within(share, 0) else f"absolute threshold: {share:.3g} {words}; none may be"
