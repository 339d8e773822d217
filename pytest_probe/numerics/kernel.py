"""The compiled kernel of numbers, where one was built for this Python and platform; kernel/numerics has its source.

It takes addresses of arrays, and gives the bits that NumPy gives in its absence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, BoolArray, FloatFormat, dtype_name
from pytest_probe.system.process import load_extension

# Revision of the kernel's source that this code needs; another revision takes or gives something else.
REVISION = 5
# Dtypes that it knows, by their numbers.
DTYPES = {"bfloat16": 0, "float16": 1, "float32": 2, "float64": 3}
# The dtypes that it rounds to.
WRITTEN = ("bfloat16", "float32", "float64")

compiled, _ = load_extension("pytest_probe.numerics._kernel", REVISION)


def describe(
    actual: AnyArray, expected: AnyArray, layout: FloatFormat
) -> tuple[float, float, float, float, float] | None:
    """Of an output compared with its reference: the largest error, its largest share of the reference, the largest and
    the sum in ulps of the layout, and how many elements are not the reference rounded. None where the kernel does not
    know that: unless the array is of real floats and contiguous, and where something is not finite."""
    if compiled is None or not (actual.flags.c_contiguous and expected.flags.c_contiguous):
        return None
    sides = _sides(actual, expected, layout)
    found: Any = None if sides is None else compiled.describe(*sides)
    return found  # type: ignore[no-any-return]


def opened(
    actual: AnyArray, expected: AnyArray, layout: FloatFormat, *, roundoff: float, least: float, limit: float
) -> BoolArray | None:
    """Where the error of an output, less half an ulp of the layout, is more than limit times what an element is
    granted: a roundoff of the reference, or least where that is more; and each error where the reference is 0. None
    where the kernel does not know that: for anything but real floats, and beyond the layout's range."""
    actual, expected = np.ascontiguousarray(actual), np.ascontiguousarray(expected)
    sides = None if compiled is None else _sides(actual, expected, layout)
    if compiled is None or sides is None:
        return None
    above = np.empty(expected.shape, bool)
    allowance = layout.max, layout.beyond_max, roundoff, least, limit
    return None if compiled.opened(*sides, *allowance, above.ctypes.data) < 0 else above


def ends(values: AnyArray) -> tuple[float, float, int, int] | None:
    """The least and the greatest of contiguous floats, and whether positive and negative zeros are there. None where
    one is not finite, and where the kernel does not know the dtype."""
    number = DTYPES.get(dtype_name(values.dtype))
    if compiled is None or number is None:
        return None
    found: tuple[float, float, int, int] | None = compiled.ends(values.ctypes.data, number, values.size)
    return found


def moves(values: AnyArray, out: AnyArray) -> bool:
    """Does the kernel move values of this dtype, and write them in that of `out`?"""
    return compiled is not None and dtype_name(values.dtype) in DTYPES and dtype_name(out.dtype) in WRITTEN


def move(
    stream: AnyArray, start: int, values: AnyArray, out: AnyArray, size: float, ends: tuple[float, ...], *, inward: bool
) -> None:
    """Write contiguous values times (1 + size xi) to `out`, within ends or, inward, towards zero: xi has unit variance,
    and is made of the uniform numbers of a stream (seven words) from the one at start on."""
    assert compiled is not None
    given = values.ctypes.data, DTYPES[dtype_name(values.dtype)], size, *ends, inward
    compiled.moved(stream.ctypes.data, start, values.size, *given, out.ctypes.data, DTYPES[dtype_name(out.dtype)])


def pile(total: AnyArray, places: AnyArray, terms: AnyArray, layout: FloatFormat) -> None:
    """Add each row of terms to the row of the total at its place, in their order, every sum rounded to the layout. All
    are contiguous, float64 and places int64."""
    assert compiled is not None
    sizes = total.ctypes.data, len(total), total.size // max(len(total), 1), places.ctypes.data
    compiled.piled(*sizes, terms.ctypes.data, len(places), *_form(layout), layout.max)


def _form(layout: FloatFormat) -> tuple[float, float, float]:
    return 2.0**layout.min_exponent, layout.top_binade, 2.0 ** (1 - layout.precision)


def _sides(actual: AnyArray, expected: AnyArray, layout: FloatFormat) -> tuple[Any, ...] | None:
    """What the kernel takes of both."""
    number = DTYPES.get(dtype_name(actual.dtype))
    if number is None or expected.dtype != np.float64 or not actual.size:
        return None
    return actual.ctypes.data, number, expected.ctypes.data, actual.size, *_form(layout)
