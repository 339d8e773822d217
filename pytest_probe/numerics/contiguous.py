"""Where an array's elements lie."""

from __future__ import annotations

import numpy as np


def in_order(array: np.ndarray) -> np.ndarray:
    """The array, or a copy where its elements do not lie in order or may not be written to.

    To NumPy a dimension of one lies in order whatever its stride is; torch refuses negative ones, and warns, once a
    process, of an array that cannot be written to.
    """
    return array if array.flags.carray and min(array.strides, default=0) >= 0 else array.copy()
