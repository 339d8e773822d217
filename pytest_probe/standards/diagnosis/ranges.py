"""Errors that depend on a value: one number in all wrong elements (zeros, NaN, inf, a clamp, unwritten memory), or
wrong elements where an argument or the result is above or below a number.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pytest_probe.numerics.dtypes import BoolArray, Float64Array
from pytest_probe.standards.diagnosis.failed_output import MIN_WRONG_ELEMENTS, NEARLY_ALL, Cause, FailedOutput

# Share of the elements on the wrong side that must be wrong; and of the wrong ones that must be on that side.
_PURE, _HELD = 0.8, 0.97
# Share of all elements that may be wrong.
_MOST_WRONG = 0.5


def value_range(failed: FailedOutput) -> Cause | None:
    # If nearly all elements are wrong, the few right ones may be so by chance.
    where = (
        _separating(failed, failed.wrong)
        if not failed.confined and failed.count <= _MOST_WRONG * failed.wrong.size
        else ""
    )
    return Cause("range", f"wrong wherever {where}, right elsewhere") if where else None


def _separating(failed: FailedOutput, chosen: BoolArray) -> str:
    """The side of a number that nearly all chosen elements lie on, and few others, "input is below -3"; "" for none."""
    count = int(np.count_nonzero(chosen))
    if count < MIN_WRONG_ELEMENTS or chosen.size - count < MIN_WRONG_ELEMENTS:
        return ""
    for name, values in _candidates(failed):
        words = _threshold(values.ravel(), chosen.ravel())
        if words:
            return f"{name} is {words}"
    return ""


def _candidates(failed: FailedOutput) -> Iterator[tuple[str, Float64Array]]:
    alike = [(name, values) for name, values in failed.inputs() if values.shape == failed.wrong.shape]
    for name, values in alike:
        yield name, values
        yield f"|{name}|", np.abs(values)
    if len(alike) > 1:
        (first, left), (second, right) = alike[:2]
        yield f"{first} - {second}", left - right
        yield f"|{first} - {second}|", np.abs(left - right)
    yield "the expected value", failed.expected
    yield "the expected magnitude", np.abs(failed.expected)


def _threshold(values: Float64Array, wrong: BoolArray) -> str:
    """ "above 3", "below -15"; "" where no number separates."""
    order = np.argsort(values, kind="stable")
    values, wrong = values[order], wrong[order]
    total = int(np.count_nonzero(wrong))
    for side in ("above", "below"):
        found = wrong[::-1] if side == "above" else wrong
        # The shortest end with nearly all of the wrong ones.
        length = int(np.searchsorted(np.cumsum(found), np.ceil(_HELD * total))) + 1
        ordered = values[::-1] if side == "above" else values
        length += int(np.argmax(np.append(ordered[length:] != ordered[length - 1], True)))
        if found.size - length < MIN_WRONG_ELEMENTS or total < _PURE * length * _HELD:
            continue
        inside, outside = found[:length], found[length:]
        if np.count_nonzero(inside) < _PURE * length or np.count_nonzero(outside) > (1 - _PURE) * outside.size:
            continue
        border = found.size - length if side == "above" else length
        low, high = float(values[border - 1]), float(values[border])
        return f"{side} {(low + high) / 2:.3g}"
    return ""


# Wrong elements: the end of an output, or one row, may be this few.
_FEW_ELEMENTS = 2


def not_finite(failed: FailedOutput) -> Cause | None:
    """NaN or inf where the reference has numbers, or numbers where it has NaN."""
    actual, expected = failed.actual[failed.wrong], failed.expected[failed.wrong]
    for words, there in (("NaN", np.isnan), ("inf", np.isinf)):
        if _nearly_all(there(actual) & ~there(expected)):
            return Cause("not finite", f"{words} where numbers are expected")
        if _nearly_all(there(expected) & ~there(actual)):
            return Cause("not finite", f"numbers where {words} is expected")
    if _nearly_all(~np.isfinite(actual) & np.isfinite(expected)):
        return Cause("not finite", "NaN and inf where numbers are expected")
    return None


def constant(failed: FailedOutput) -> Cause | None:
    """One number in all wrong elements."""
    actual, expected = failed.actual[failed.wrong], failed.expected[failed.wrong]
    if failed.count < _FEW_ELEMENTS or failed.comparison.actual.dtype.kind == "b" or not np.isfinite(expected).all():
        return None
    if _nearly_all(expected == 0) and np.count_nonzero(failed.expected):
        return Cause("range", "numbers where zeros are expected")
    value = float(np.median(np.abs(actual)))
    if not _nearly_all(np.abs(actual) == value):
        return None
    if value == 0:
        if _nearly_all((failed.actual == 0)[failed.expected != 0]):
            return Cause("unwritten", "zeros everywhere")
        # A zero is not wrong where the right number is next to zero.
        where = _separating(failed, failed.actual == 0)
        if where:
            return Cause("range", f"zero wherever {where}")
        return Cause("unwritten", "zeros, as memory that nothing was written to" if failed.confined else "zeros")
    # A clamp keeps values inside its limits, and the sign of those outside.
    outside = np.abs(failed.expected) >= value
    clamped = np.copysign(value, expected) == actual
    near = np.abs(np.abs(failed.actual) - value) <= failed.allowed + 1e-6 * value
    if _nearly_all(clamped & outside[failed.wrong]) and not np.any(outside & ~near):
        return Cause("range", f"clamped at {value:.6g}")
    if not _nearly_all(actual == actual[0]) or np.unique(expected).size < 2 * _FEW_ELEMENTS:
        return None
    where = _separating(failed, failed.actual == actual[0])
    if not where and not failed.confined:
        return None
    if where:
        return Cause("range", f"{actual[0]:.6g} wherever {where}")
    return Cause("unwritten", f"the number {actual[0]:.6g} in all of them: filled, or one result for all")


def _nearly_all(found: BoolArray | Float64Array) -> bool:
    return found.size > 0 and bool(np.count_nonzero(found) >= NEARLY_ALL * found.size)
