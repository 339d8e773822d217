"""Bit for bit against the reference rounded to the dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.comparison import Comparison
from pytest_probe.model.verdict import Basis, Detects, Element, Metric, OutputVerdict
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
)
from pytest_probe.numerics.ulp import ulp_distance


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
