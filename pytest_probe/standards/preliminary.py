"""The three-state status of msprobe's checker and its kin, decided without a benchmark.

Cosine, then the largest absolute error, then shares of elements within a relative error: the first that decides ends
it. So any tensor below 0.001 passes on its cosine alone.
"""

from __future__ import annotations

import math

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.ruling import PASS, Ruling

COSINE, MAX_ABS = 0.99, 0.001
# A side with no larger magnitude counts as zero, and has no cosine.
ZERO = 2.0**-52
NARROW, WIDE = ("float16", "bfloat16"), ("float32", "float64")


def preliminary(measures: Measures, dtype: str, *, nan_cosine_passes: bool = False) -> Ruling:
    cosine = cosine_trouble(measures, nan_passes=nan_cosine_passes)
    if cosine:
        return Ruling("error", cosine)
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


def _shares(measures: Measures, coarse: str, coarse_limit: float, fine: str, fine_limit: float) -> Ruling:
    for name, limit in ((coarse, coarse_limit), (fine, fine_limit)):
        share = getattr(measures, name)
        if share is not None and not share > 1 - limit:
            reason = f"{share:.5g} of the elements are within {limit:g}, must be more than {1 - limit:g}"
            return Ruling("error" if name == coarse else "warning", reason)
    return PASS
