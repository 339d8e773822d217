"""Equal bits: with the reference rounded to the dtype, and of elements with each other whose arguments are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison, Standard
from pytest_probe.model.verdict import UNDECIDED, Basis, Detects, Element, Metric, OutputVerdict
from pytest_probe.numerics import metrics
from pytest_probe.numerics.arrays import BLOCK, blocks
from pytest_probe.numerics.dtypes import (
    AnyArray,
    BoolArray,
    dtype_name,
    float_format,
    is_complex,
    is_floating,
    is_inexact,
    round_to,
    ulp_distance,
    widen,
)


class Exact:
    """Every element is the reference, correctly rounded; all NaN are alike, and so are zeros of both signs, but where
    numbers are only moved: arithmetic may give either zero, a copy may not."""

    name = "exact"

    def judge(self, comparison: Comparison) -> OutputVerdict:
        if comparison.actual.size > BLOCK and _is_right(comparison):
            measured = metrics.describe(comparison.actual, comparison.expected)
            return _passed(comparison, measured)
        wanted = correctly_rounded(comparison.expected, comparison.actual.dtype)
        same = identical(comparison.actual, wanted)
        if not same.all():
            same = same | _rounded_twice(comparison)
        differ = "elements differ from the correctly rounded reference; none may"
        if same.all() and _moves(comparison):
            same = ~_other_zeros(comparison.actual, wanted)
            differ = "elements are zeros of the other sign; a copy keeps the sign"
        measured = metrics.describe(comparison.actual, comparison.expected)
        if same.all():
            return _passed(comparison, measured)
        count = int(np.count_nonzero(~same))
        reason = f"{count:,} of {same.size:,} {differ}"
        worst = elements(comparison, ~same)
        return OutputVerdict(
            comparison.name,
            comparison.actual.shape,
            dtype_name(comparison.actual.dtype),
            "error",
            self.name,
            reason,
            measured,
            worst,
        )


def differing(comparison: Comparison, actual: AnyArray, expected: AnyArray) -> BoolArray:
    """All elements of another part of an output where that part does not pass as well, none else."""
    passes = Exact().judge(replace(comparison, actual=actual, expected=expected)).verdict == "pass"
    return np.full(actual.shape, not passes)


def _passed(comparison: Comparison, measured: Mapping[str, Metric]) -> OutputVerdict:
    actual, basis = comparison.actual, Basis(comparison, None) if comparison.sampled else None
    name, dtype = comparison.name, dtype_name(actual.dtype)
    found = None
    if is_inexact(actual.dtype):
        # One ulp; and one roundoff of all elements where there is a number.
        scale = float_format(comparison.precision).roundoff if comparison.expected.any() else None
        found = Detects(scale, 1.0, 1.0 if row_of(actual) else None)
    return OutputVerdict(name, actual.shape, dtype, "pass", Exact.name, metrics=measured, basis=basis, detects=found)


def row_of(actual: AnyArray) -> int:
    """The elements of a row along the last dimension; 0 where that is all of the output, or one element."""
    shape = actual.shape
    return shape[-1] if len(shape) > 1 and 1 < shape[-1] < actual.size else 0


def _is_right(comparison: Comparison) -> bool:
    """Is each element the reference rounded once? Looked at block by block."""
    moves = _moves(comparison)
    for actual, expected in blocks(comparison.actual, comparison.expected):
        wanted = correctly_rounded(expected, actual.dtype)
        if not identical(actual, wanted).all() or (moves and _other_zeros(actual, wanted).any()):
            return False
    return True


def correctly_rounded(expected: AnyArray, dtype: np.dtype) -> AnyArray:
    """The reference in the output's dtype, rounded once; integers and bool as they are."""
    if not is_inexact(dtype):
        return expected
    return round_to(expected, dtype)


def _rounded_twice(comparison: Comparison) -> BoolArray | bool:
    """Where an element is the reference rounded to float32 first: so kernels cast float64 to narrower dtypes. It is the
    same number wherever the reference is one of float32."""
    dtype = comparison.actual.dtype
    if not is_floating(dtype) or float_format(dtype).roundoff <= float_format("float32").roundoff:
        return False
    single = np.asarray(round_to(comparison.expected, "float32"))
    return np.asarray(identical(comparison.actual, round_to(single, dtype)))


def identical(actual: AnyArray, wanted: AnyArray) -> AnyArray:
    """Element-wise equality, NaN being like NaN."""
    same = np.asarray(actual == wanted)
    if not same.all() and actual.dtype.kind not in "iub":
        same |= (actual != actual) & (wanted != wanted)
    return same


def _moves(comparison: Comparison) -> bool:
    """Are these copies? Gradients may be sums with zeros, and a device mode may have made the zeros."""
    return "moves" in comparison.classes and comparison.direction == "forward" and not comparison.allowance.emulated


def _other_zeros(actual: AnyArray, wanted: AnyArray) -> BoolArray:
    """Where both are zeros, of different signs; of complex numbers in either part."""
    if is_complex(actual.dtype):
        return _other_zeros(actual.real, wanted.real) | _other_zeros(actual.imag, wanted.imag)
    if not is_floating(actual.dtype):
        return np.zeros(actual.shape, dtype=bool)
    return np.asarray((actual == 0) & (wanted == 0) & (np.signbit(actual) != np.signbit(wanted)))


def elements(comparison: Comparison, score: AnyArray, ratios: AnyArray | None = None) -> tuple[Element, ...]:
    """The five elements of the largest score, as reports show them."""
    found = metrics.worst(np.where(score, distances(comparison), -1.0) if score.dtype == bool else score)
    wanted = [index for index in found if score.dtype != bool or score[index]]
    return tuple(_elements(comparison, wanted, ratios))


def distances(comparison: Comparison) -> AnyArray:
    """How far each element is from the reference, in ULP; of integers their differences."""
    actual = comparison.actual
    if is_inexact(actual.dtype):
        return ulp_distance(actual, comparison.expected, actual.dtype)
    return np.abs(actual.astype(np.float64) - comparison.expected.astype(np.float64))


def _elements(comparison: Comparison, indices: Sequence[tuple[int, ...]], ratios: AnyArray | None) -> Iterator[Element]:
    actual, expected = (
        np.array([side[index] for index in indices], side.dtype) for side in (comparison.actual, comparison.expected)
    )
    if is_inexact(actual.dtype):
        apart = ulp_distance(actual, expected, actual.dtype).tolist()
    else:
        apart = [abs(int(first) - int(second)) for first, second in zip(actual, expected, strict=True)]
    for place, index in enumerate(indices):
        ratio = float("nan") if ratios is None else float(ratios[index])
        yield Element(index, _plain(actual[place]), _plain(expected[place]), float(apart[place]), ratio)


def _plain(value: np.generic) -> float | str:
    if np.asarray(value).dtype.kind == "c":
        return f"{complex(value):.9g}"
    return float(value) if np.asarray(value).dtype.kind not in "iub" else int(value)


# Where a call works element by element, a kernel may compute otherwise by its vectors than in the rest of a loop.
# Rounding differs between both by an ulp or two, which other rules judge. Here the reference is asked, run on the
# CPU: where it has a number and NaN, or two numbers, for equal arguments, it judges nothing.
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
    not known. A real gradient is a part of a product with a complex one, and no multiple of it."""
    if comparison.direction == "forward":
        return np.broadcast_to(np.ones(1), comparison.actual.size)
    incoming = list(comparison.case.incoming.values())
    known = len(incoming) == 1 and incoming[0].shape == comparison.actual.shape and not is_complex(incoming[0].dtype)
    return widen(incoming[0]).ravel() if known else np.zeros(0)


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
