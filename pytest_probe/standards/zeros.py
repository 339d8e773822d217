"""Dropout as the tools judge it: by the share of zeros, within 10 %, and not at all below 100 elements."""

from __future__ import annotations

from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.standards.ruling import PASS, Ruling

LEAST_ELEMENTS, MOST = 100, 0.1


def zeros(actual: AnyArray, expected: AnyArray) -> Ruling:
    if actual.size < LEAST_ELEMENTS:
        return PASS
    gap = abs(int((actual == 0).sum()) - int((expected == 0).sum())) / actual.size
    return PASS if gap < MOST else Ruling("error", f"the share of zeros is {gap:.3g} off the reference's, limit {MOST}")
