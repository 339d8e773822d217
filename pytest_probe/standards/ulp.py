"""The ULP rule: a mean, or a share of elements beyond a threshold; else no worse a share than the benchmark's.

float32: mean below 64, or fewer than 5 % beyond 32 ULP. 16 bit: fewer than 0.1 % beyond 1 ULP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_probe.numerics.measures import Measures
from pytest_probe.standards.ruling import PASS, Ruling


@dataclass(frozen=True, slots=True)
class UlpLimits:
    """The mean passes below `mean` (0: no mean does), the share beyond the threshold below `over_ratio`."""

    over_ratio: float
    mean: float = 0.0


FLOAT32 = UlpLimits(over_ratio=0.05, mean=64.0)
NARROW = UlpLimits(over_ratio=0.001)


def ulp(measures: Measures, limits: UlpLimits, benchmark: Measures | None = None, floor: float = 0.0) -> Ruling:
    """benchmark: another device's errors against the same reference, whose share counts as floor at least. A mean that
    is NaN or inf must be the benchmark's too."""
    mean, share = _number(measures.ulp_mean), _number(measures.ulp_over_ratio)
    if benchmark is not None and not _alike(mean, _number(benchmark.ulp_mean)):
        return Ruling("error", f"ULP: mean {mean:.3g}, the benchmark's {_number(benchmark.ulp_mean):.3g}")
    if mean < limits.mean or share < limits.over_ratio:
        return PASS
    if benchmark is not None and share < max(_number(benchmark.ulp_over_ratio), floor):
        return PASS
    allowed = f"a share of {limits.over_ratio:g}" + (f", or a mean of {limits.mean:g}" if limits.mean else "")
    return Ruling("error", f"ULP: mean {mean:.3g}, {share:.3g} of the elements beyond the threshold; below {allowed}")


def _number(value: float | None) -> float:
    return 0.0 if value is None else value


def _alike(mean: float, other: float) -> bool:
    finite = math.isfinite(mean) and math.isfinite(other)
    return finite or mean == other or (math.isnan(mean) and math.isnan(other))
