"""How many different values an array has, as far as somebody asks."""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray

# Elements that are looked at first: sorting all of them takes longer than most that is done with them.
FIRST = 64


def has_distinct(values: AnyArray, count: int) -> bool:
    """Has the array at least so many different values? NaN counts as one."""
    flat = values.reshape(-1)
    if np.unique(flat[:FIRST]).size >= count:
        return True
    return flat.size > FIRST and np.unique(flat).size >= count
