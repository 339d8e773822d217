"""Are two arrays of one shape equal: in their bits, or in their values?"""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics.arrays import PASS, blocks
from pytest_probe.numerics.dtypes import AnyArray, widen

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}


def equal_bits(a: AnyArray, b: AnyArray) -> float:
    """The share of elements that have the same bits; of two dtypes, of those that have the same value. 1 of none."""
    if not a.size:
        return 1.0
    same = 0
    for one, other in blocks(a, b, PASS):
        same += int(np.count_nonzero((_same_bits if a.dtype == b.dtype else same_value)(one, other)))
    return same / a.size


def _same_bits(one: AnyArray, other: AnyArray) -> AnyArray:
    first, second = (np.ascontiguousarray(side).view(_WORDS[side.dtype.itemsize]) for side in (one, other))
    same = first == second
    return np.asarray(same if same.size == one.size else same.reshape(one.size, -1).all(axis=1))


def same_value(one: AnyArray, other: AnyArray) -> AnyArray:
    """Equal numbers, or NaN twice."""
    first, second = widen(one), widen(other)
    return np.asarray((first == second) | (np.isnan(first) & np.isnan(second)))
