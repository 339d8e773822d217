"""How far an output is off as a whole: the RMS of its errors over the RMS of the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pytest_probe.numerics.blocks import blocks
from pytest_probe.numerics.dtypes import AnyArray, widen


class RelativeRmse(NamedTuple):
    """value: sqrt(sum |a - r|**2 / sum |r|**2) over the elements that are finite on both sides; 0 where none errs, inf
    where only zeros are expected and one errs. Never NaN.

    carriers: how many elements the reference's RMS is made of, (sum |r|**2)**2 / sum |r|**4 (the participation ratio):
    all of them where they are equal, 1 where one is much larger than all others, 0 where all are zero.
    """

    value: float
    carriers: float


def relative_rmse(actual: AnyArray, expected: AnyArray) -> RelativeRmse:
    """Of two arrays of one shape."""
    largest = max((float(np.abs(wanted).max(initial=0.0)) for _, wanted in _finite(actual, expected)), default=0.0)
    # A power of 2 keeps squares from overflow and underflow, and rounds nothing.
    scale = math.ldexp(1.0, -max(math.frexp(largest)[1], -1020)) if largest else 1.0
    error = second = fourth = 0.0
    with np.errstate(over="ignore"):
        for values, wanted in _finite(actual, expected):
            scaled = wanted * scale
            error += _total(_squares(values * scale - scaled))
            squares = _squares(scaled)
            second += _total(squares)
            fourth += float(np.vdot(squares, squares))
    carriers = second * second / fourth if fourth else 0.0
    if error == 0:
        return RelativeRmse(0.0, carriers)
    return RelativeRmse(math.sqrt(error / second) if second else math.inf, carriers)


def _finite(actual: AnyArray, expected: AnyArray) -> Iterator[tuple[AnyArray, AnyArray]]:
    for first, second in blocks(actual, expected):
        values, wanted = widen(first), widen(second)
        finite = np.isfinite(values) & np.isfinite(wanted)
        yield (values, wanted) if finite.all() else (values[finite], wanted[finite])


def _squares(values: AnyArray) -> AnyArray:
    return values.real**2 + values.imag**2 if values.dtype.kind == "c" else values * values


def _total(values: AnyArray) -> float:
    return float(values.sum())
