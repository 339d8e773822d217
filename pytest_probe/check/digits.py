"""How many decimal digits of an output are right: of the device's, and of the reference's own float32 run.

Digits = -log10(RMS of the error / RMS of the reference), at most those of the dtype, -log10 of its roundoff: 7.2 of
float32, 3.3 of float16, 2.4 of bfloat16. Where the float32 run on the CPU has as few, the call loses them, and not the
device.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from pytest_probe.check.check import Checker
from pytest_probe.check.comparisons import comparisons
from pytest_probe.check.judging import UNREADABLE
from pytest_probe.check.outcome import CaseOutcome
from pytest_probe.model.comparison import Comparison
from pytest_probe.numerics.dtypes import dtype_name, float_format, is_floating
from pytest_probe.numerics.metrics import relative_rmse


class Digits(Struct, frozen=True):
    """Those of one output. most are those of its dtype, error is the relative RMS error; single are those of the
    reference's float32 run, None without one."""

    output: str
    dtype: str
    right: float
    most: float
    error: float
    single: float | None = None

    @property
    def description(self) -> str:
        """ "6.9 of 7.2 digits (float32 run: 7.0)"."""
        run = "" if self.single is None else f" (float32 run: {self.single:.1f})"
        return f"{self.right:.1f} of {self.most:.1f} digits{run}"

    def __str__(self) -> str:
        run = "" if self.single is None else f"; {self.single:.1f} in the reference's own float32 run"
        error = f"the RMS of the errors is {self.error:.2g} of that of the reference"
        return f"{self.right:.1f} of {self.most:.1f} decimal digits are right ({self.dtype}): {error}{run}"


def digits_of(checked: CaseOutcome, checker: Checker) -> tuple[Digits, ...]:
    """Those of each floating output of a case that was judged. The reference runs once more, in float32."""
    if checked.worst is None:
        return ()
    try:
        with checker.making_calls(checked.case) as engines:
            seed, direction = engines.request.seed, checked.case.direction
            asked = comparisons(checked.worst, direction, seed, by_class=True)
            floats = (each for each in asked if isinstance(each, Comparison) and is_floating(each.actual.dtype))
            return tuple(_of(each) for each in floats if each.actual.size)
    except (MemoryError, *UNREADABLE):
        return ()


def _of(comparison: Comparison) -> Digits:
    actual, expected = comparison.actual, comparison.expected
    single = comparison.evidence.single()
    error, most = relative_rmse(actual, expected).value, _most(comparison.precision)
    own = None if single is None else _digits(relative_rmse(single, expected).value, _most(np.dtype(np.float32)))
    return Digits(comparison.name, dtype_name(actual.dtype), _digits(error, most), most, error, own)


def _most(dtype: np.dtype) -> float:
    return -math.log10(float_format(dtype).roundoff)


def _digits(error: float, most: float) -> float:
    return most if not error else min(most, max(0.0, -math.log10(error)))
