"""One value where numbers are expected: zeros, NaN, inf, a clamp, memory that was not written."""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics.dtypes import BoolArray, Float64Array
from pytest_probe.standards.diagnosis.ranges import separating
from pytest_probe.standards.diagnosis.trouble import NEARLY_ALL, Cause, Trouble

# Elements: what lies at the end of an output, or in one row, may be this few.
FEW = 2


class NotFinite:
    """NaN or inf where the reference has numbers, or numbers where it has NaN."""

    def explain(self, trouble: Trouble) -> Cause | None:
        actual, expected = trouble.actual[trouble.wrong], trouble.expected[trouble.wrong]
        for words, there in (("NaN", np.isnan), ("inf", np.isinf)):
            if _nearly_all(there(actual) & ~there(expected)):
                return Cause("not finite", f"{words} where numbers are expected")
            if _nearly_all(there(expected) & ~there(actual)):
                return Cause("not finite", f"numbers where {words} is expected")
        if _nearly_all(~np.isfinite(actual) & np.isfinite(expected)):
            return Cause("not finite", "NaN and inf where numbers are expected")
        return None


class Constant:
    """One number in the place of all that is wrong."""

    def explain(self, trouble: Trouble) -> Cause | None:
        actual, expected = trouble.actual[trouble.wrong], trouble.expected[trouble.wrong]
        if trouble.count < FEW or trouble.comparison.actual.dtype.kind == "b" or not np.isfinite(expected).all():
            return None
        if _nearly_all(expected == 0) and np.count_nonzero(trouble.expected):
            return Cause("range", "numbers where zeros are expected")
        value = float(np.median(np.abs(actual)))
        if not _nearly_all(np.abs(actual) == value):
            return None
        if value == 0:
            return self._zeros(trouble)
        # A clamp leaves what is inside its limits, and takes the sign of what is outside.
        outside = np.abs(trouble.expected) >= value
        clamped = np.copysign(value, expected) == actual
        if _nearly_all(clamped & outside[trouble.wrong]) and not np.any(outside & ~_near(trouble, value)):
            return Cause("range", f"clamped at {value:.6g}")
        if not _nearly_all(actual == actual[0]) or np.unique(expected).size < 2 * FEW:
            return None
        where = separating(trouble, trouble.actual == actual[0])
        if not where and not trouble.confined:
            return None
        if where:
            return Cause("range", f"{actual[0]:.6g} wherever {where}")
        return Cause("unwritten", f"the number {actual[0]:.6g} in all of them, as memory that nothing was written to")

    def _zeros(self, trouble: Trouble) -> Cause:
        if _nearly_all((trouble.actual == 0)[trouble.expected != 0]):
            return Cause("unwritten", "zeros everywhere")
        # Where the right number is next to zero a zero is not wrong.
        where = separating(trouble, trouble.actual == 0)
        if where:
            return Cause("range", f"zero wherever {where}")
        return Cause("unwritten", "zeros, as memory that nothing was written to" if trouble.confined else "zeros")


def _near(trouble: Trouble, value: float) -> BoolArray:
    return np.asarray(np.abs(np.abs(trouble.actual) - value) <= trouble.allowed + 1e-6 * value)


def _nearly_all(found: BoolArray | Float64Array) -> bool:
    return found.size > 0 and bool(np.count_nonzero(found) >= NEARLY_ALL * found.size)
