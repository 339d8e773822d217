"""Accumulative error: absolute thresholds with one bound for values up to 1 and, relative, for larger ones; and errors
to both sides in balance. The bound is the convention's under which the metrics were taken.
"""

from __future__ import annotations

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.absolute_threshold import absolute_threshold
from pytest_probe.standards.ruling import Ruling, first, within


def accumulative(measures: Measures, error_balance: float) -> Ruling:
    ruling = absolute_threshold(measures)
    if ruling.verdict == "error":
        return ruling
    found = measures.error_balance
    return first("" if within(found, error_balance) else f"error balance {found:.3g}, limit {error_balance:.3g}")
