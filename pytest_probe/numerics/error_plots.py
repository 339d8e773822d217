"""The little data that the plots of one output draw: errors by size and by position, and expected against actual."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import AnyArray, Float64Array, is_complex, is_inexact, ulp_distance, widen

# The range of the bins: below 2**-16 units a distance is zero, and from 2**63 on all are alike. Of numbers that are no
# distances only 0 is zero.
LEAST_EXPONENT, MOST_EXPONENT = -16, 63
LEAST_OF_ALL = -1074
# Values that a histogram counts; from a larger array, evenly spaced values and the largest.
COUNTED = 1 << 16


class Histogram(Struct, frozen=True):
    """counts[i] is the number of values from 2**(first + i) up to twice that.

    small counts values below the least bin, with zeros; large those from 2**63 on, with inf and NaN. Every step-th
    value was counted, and the largest.
    """

    first: int
    counts: tuple[int, ...]
    small: int
    large: int
    step: int = 1


def histogram(values: Float64Array, least: int = LEAST_EXPONENT) -> Histogram:
    """The histogram of values of any shape, none below 0, whose bins begin at 2**least."""
    flat = values.reshape(-1)
    step = max(1, -(-flat.size // COUNTED))
    counted = flat[::step]
    if step > 1:
        # NaN is the largest of all.
        counted = np.append(counted, flat[int(np.argmax(flat))])
    small, large = counted < 2.0**least, ~(counted < 2.0**MOST_EXPONENT)
    _, exponents = np.frexp(counted[~(small | large)])
    below, above = int(np.count_nonzero(small)), int(np.count_nonzero(large))
    if not exponents.size:
        return Histogram(0, (), below, above, step)
    first = int(exponents.min())
    counts = np.bincount(exponents - first)
    return Histogram(first - 1, tuple(counts.tolist()), below, above, step)


# Points of the scatter: elements with the largest errors, and evenly spaced ones.
_WORST_POINTS, _OTHER_POINTS = 12, 36
# Rows and columns of the map by position, and elements of a slice that it reads.
_ROWS, _COLUMNS, _SLICE_ELEMENTS = 24, 40, 1 << 20
# One letter a cell: 0 is no error, the others are powers of two from 2**-8 on, the last is NaN or inf.
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_LETTER_CODES = np.frombuffer(LETTERS.encode(), dtype=np.uint8)
LOWEST = -8
_DIGITS = 4


class Points(Struct, frozen=True):
    """Elements: the reference's value, and the device's minus it; complex numbers by their moduli. The first `worst`
    have the largest errors. Without elements that are not finite."""

    expected: tuple[float, ...]
    more: tuple[float, ...]
    worst: int


class ErrorMap(Struct, frozen=True):
    """The largest error in each cell of a 2-d slice, as a letter of LETTERS, row by row.

    index is the slice's in the leading dimensions; extents are the sizes of the last two dimensions, (1, n) of a
    vector; columns is the number of cells in a row. Floats' errors are in ULP, others are differences.
    """

    index: tuple[int, ...]
    extents: tuple[int, int]
    columns: int
    cells: str


def errors_of(actual: AnyArray, expected: AnyArray) -> Float64Array:
    """The distance in ULP of the device's dtype; for integers and truth values, the difference."""
    if is_inexact(actual.dtype):
        return ulp_distance(actual, expected, actual.dtype)
    return np.abs(actual.astype(np.float64) - expected.astype(np.float64))


def sample(actual: AnyArray, expected: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Evenly spaced elements of both sides, as vectors."""
    step = max(1, -(-actual.size // COUNTED))
    return actual.reshape(-1)[::step], expected.reshape(-1)[::step]


def points(actual: AnyArray, expected: AnyArray, errors: Float64Array) -> Points:
    """The points of vectors of both sides, and their errors."""
    # The places of the largest errors, the largest first, and of equal ones the first.
    sizes, places = np.where(np.isnan(errors), np.inf, errors), np.arange(errors.size)
    if errors.size > _WORST_POINTS:
        least = np.partition(sizes, -_WORST_POINTS)[-_WORST_POINTS]
        above, equal = np.flatnonzero(sizes > least), np.flatnonzero(sizes == least)
        places = np.concatenate([above, equal[: _WORST_POINTS - above.size]])
    order = places[np.argsort(-sizes[places], kind="stable")]
    others = np.linspace(0, errors.size - 1, min(_OTHER_POINTS, errors.size)).astype(np.int64)
    right, given = (_plain(side[np.concatenate([order, others])]) for side in (expected, actual))
    more = given - right
    finite = np.isfinite(right) & np.isfinite(more)
    finite_pairs = [tuple(round_digits(each, _DIGITS) for each in side[finite].tolist()) for side in (right, more)]
    return Points(finite_pairs[0], finite_pairs[1], int(np.count_nonzero(finite[: order.size])))


def error_map(actual: AnyArray, expected: AnyArray, worst: tuple[int, ...]) -> ErrorMap:
    """The map of the 2-d slice, in the last two dimensions, that holds the element at the index `worst`."""
    if actual.ndim < 2:
        actual, expected = actual.reshape(1, -1), expected.reshape(1, -1)
        worst = (0, *(worst or (0,)))
    index = worst[:-2]
    extents = (int(actual.shape[-2]), int(actual.shape[-1]))
    step = max(1, math.ceil(math.sqrt(extents[0] * extents[1] / _SLICE_ELEMENTS)))
    every: Any = (*index, slice(worst[-2] % step, None, step), slice(worst[-1] % step, None, step))
    errors = errors_of(actual[every], expected[every])
    # The largest error in each cell.
    cells = np.where(np.isnan(errors), np.inf, errors)
    for axis, most in ((0, _ROWS), (1, _COLUMNS)):
        starts = np.unique(np.linspace(0, cells.shape[axis], most + 1)[:-1].astype(np.int64))
        cells = np.maximum.reduceat(cells, starts, axis=axis)
    # The place of each error in LETTERS.
    _, exponents = np.frexp(cells)
    last = len(LETTERS) - 1
    levels = np.clip(exponents - LOWEST, 1, last - 1)
    letters = _LETTER_CODES[np.where(cells == 0, 0, np.where(np.isfinite(cells), levels, last))].tobytes().decode()
    return ErrorMap(tuple(map(int, index)), extents, cells.shape[1], letters)


def _plain(values: AnyArray) -> Float64Array:
    wide = widen(values) if is_inexact(values.dtype) else values
    return np.asarray(np.abs(wide) if is_complex(wide.dtype) else wide, dtype=np.float64)


def round_digits(value: float, digits: int) -> float:
    """So many digits of a number; those next to the largest of all would be inf."""
    rounded = float(f"{value:.{digits}g}")
    return rounded if math.isfinite(rounded) else value
