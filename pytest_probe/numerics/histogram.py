"""How many values lie between powers of two: what a plot draws in the place of the values."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import Float64Array

# Powers of two between which values are told apart: a distance below 2**-16 units is none, one of 2**63 is any.
LEAST, MOST = -16, 63
# Values that are counted; of more, evenly spaced ones, and the largest.
COUNTED = 1 << 16


class Histogram(Struct, frozen=True):
    """counts[i] is the number of values from 2**(first + i) up to twice that.

    small counts values below 2**-16, with zeros; large those from 2**63 on, with inf and NaN. Every step-th value was
    counted, and the largest.
    """

    first: int
    counts: tuple[int, ...]
    small: int
    large: int
    step: int = 1


def histogram(values: Float64Array) -> Histogram:
    """Of values of any shape, none below 0."""
    flat = values.reshape(-1)
    step = max(1, -(-flat.size // COUNTED))
    taken = flat[::step]
    if step > 1:
        # NaN is the largest of all.
        taken = np.append(taken, flat[int(np.argmax(flat))])
    small, large = taken < 2.0**LEAST, ~(taken < 2.0**MOST)
    _, exponents = np.frexp(taken[~(small | large)])
    below, above = int(np.count_nonzero(small)), int(np.count_nonzero(large))
    if not exponents.size:
        return Histogram(0, (), below, above, step)
    first = int(exponents.min())
    counts = np.bincount(exponents - first)
    return Histogram(first - 1, tuple(counts.tolist()), below, above, step)
