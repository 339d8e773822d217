"""Equal inputs, equal results: where a call works element by element, elements with equal arguments have one result,
wherever they lie. A kernel may compute otherwise by its vectors than in the rest of a loop.

Rounding differs between both by an ulp or two, which other rules judge beside the reference. Here the reference itself
is asked, which runs on the CPU: where it has a number and NaN, or two numbers, for equal arguments, it judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.verdict import UNDECIDED, OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, dtype_name, float_format, is_complex, is_floating, widen
from pytest_probe.standards.exact import correctly_rounded, elements

NAME = "equal inputs"
# Elements that are looked at: so many of the first and of the last, and of those with NaN or an infinity.
PART = 1 << 12
# Shares of the larger number beyond which two differ: in float64, and on a device, in roundoffs of its dtype or, where
# that is less, of what float32 rounds inside. Healthy kernels of torch's CPU are up to 8 roundoffs of float32 apart.
REFERENCE, ROUNDOFFS, LEAST = 2.0**-20, 8.0, 2.0**-12


def judged_apart(standard: Standard, comparison: Comparison) -> OutputVerdict:
    """The verdict: an error where the device is at odds with itself as the reference is, else on those elements where
    the reference is not."""
    arguments = _arguments(comparison)
    per = _proportional(comparison) if arguments else np.zeros(0)
    odd = _at_odds(comparison.expected.ravel(), arguments, per) if per.size else per
    if not odd.size:
        return standard.judge(comparison)
    share = max(ROUNDOFFS * float_format(comparison.actual.dtype).roundoff, LEAST)
    bits, actual = [_bits(array) for array in arguments], widen(comparison.actual).ravel()
    groups = [_is_usable(per) & np.logical_and.reduce([key == key[place] for key in bits]) for place in map(int, odd)]
    where = np.logical_or.reduce(groups).reshape(comparison.actual.shape)
    count = f"{np.count_nonzero(where):,} of {where.size:,} elements"
    if any(_differ(actual[group] / per[group], np.zeros(1, np.int64), share).any() for group in groups):
        reason = f"{count} have other results than elements with equal arguments"
        shape, dtype, worst = where.shape, dtype_name(comparison.actual.dtype), elements(comparison, where)
        return OutputVerdict(comparison.name, shape, dtype, "error", NAME, reason, worst=worst)
    right = correctly_rounded(comparison.expected, comparison.actual.dtype)
    verdict = standard.judge(replace(comparison, actual=np.where(where, right, comparison.actual)))
    if verdict.verdict == "error":
        return verdict
    reason = f"{UNDECIDED}{count}: the reference is at odds with itself, it has several results for equal arguments"
    return replace(verdict, verdict="warning", reason=reason, worst=elements(comparison, where))


def _arguments(comparison: Comparison) -> Sequence[AnyArray]:
    """The arguments of each element, flat; none where they are not of the output's shape, or the call is not one
    of elements."""
    classes, shape = comparison.classes, comparison.actual.shape
    if "elementwise" not in classes or "random" in classes or comparison.expected.dtype.kind != "f":
        return ()
    given = comparison.call.given.values()
    arrays = [value for value in given if isinstance(value, np.ndarray) and value.size > 1]
    if any(isinstance(value, (list, tuple)) for value in given) or any(array.shape != shape for array in arrays):
        return ()
    return () if any(is_complex(array.dtype) for array in arrays) else [array.ravel() for array in arrays]


def _proportional(comparison: Comparison) -> AnyArray:
    """The incoming gradient that each element of a gradient is a multiple of, ones for a result; nothing where that is
    not known."""
    if comparison.direction == "forward":
        return np.broadcast_to(np.ones(1), comparison.actual.size)
    given = [value for value in comparison.case.incoming.values() if value.shape == comparison.actual.shape]
    return widen(given[0]).ravel() if len(given) == len(comparison.case.incoming) == 1 else np.zeros(0)


def _is_usable(per: AnyArray) -> BoolArray:
    return np.asarray(np.isfinite(per) & (per != 0))


def _bits(values: AnyArray) -> AnyArray:
    """All NaN are one."""
    if is_floating(values.dtype):
        values = np.where(np.isnan(values), np.asarray(np.nan, values.dtype), values)
    return np.asarray(values.view(f"u{values.dtype.itemsize}"))


def _at_odds(expected: AnyArray, arguments: Sequence[AnyArray], per: AnyArray) -> AnyArray:
    """A place of each group of elements with equal arguments that have several results in the reference."""
    places = np.arange(min(expected.size, 2 * PART))
    if expected.size > places.size:
        odd = np.flatnonzero(~np.isfinite(expected))
        places = np.unique(np.concatenate([places[:PART], expected.size - 1 - places[:PART], odd[:PART], odd[-PART:]]))
    places = places[_is_usable(per[places])]
    if not places.size:
        return places
    keys = [_bits(array[places]) for array in arguments]
    order = np.lexsort(keys)
    differ = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
    starts, places = np.concatenate([[0], np.flatnonzero(differ) + 1]), places[order]
    if starts.size == places.size:
        return places[:0]
    return np.asarray(places[starts[_differ(expected[places] / per[places], starts, REFERENCE)]])


def _differ(values: AnyArray, starts: AnyArray, share: float) -> BoolArray:
    """Which groups of values, one after another, are not of one number, or of one kind."""
    missing = np.isnan(values)
    counts = np.diff(starts, append=values.size)
    lost = np.add.reduceat(missing.astype(np.int64), starts)
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = (low != high) & ~(high - low <= share * np.maximum(np.abs(low), np.abs(high)))
    return np.asarray(((lost > 0) & (lost < counts)) | (apart & (lost < counts)))
