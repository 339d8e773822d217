"""The thousandth rule: of all elements, at least 99.9 % have a relative error below 0.001."""

from __future__ import annotations

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.ruling import PASS, Ruling

LEAST = 0.999


def thousandth(measures: Measures, least: float = LEAST) -> Ruling:
    share = measures.thousandth_ratio
    if share is None or share >= least:
        return PASS
    return Ruling("error", f"thousandth: {share:.5g} of the elements are within 0.001, at least {least} must be")
