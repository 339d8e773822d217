"""Binary consistency: every element equals the reference, NaN never does."""

from __future__ import annotations

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.ruling import PASS, Ruling, within


def binary(measures: Measures) -> Ruling:
    if within(measures.binary_mismatch_ratio, 0):
        return PASS
    return Ruling("error", f"binary: a share of {measures.binary_mismatch_ratio:.3g} differs; none may")
