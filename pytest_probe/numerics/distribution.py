"""How errors are spread, in one line of blocks."""

from __future__ import annotations

import numpy as np

from pytest_probe.numerics.dtypes import Float64Array

# Columns, of a factor each that takes the first to the last.
COLUMNS = 16
BLOCKS = "▁▂▃▄▅▆▇█"
# The least that a line begins with, and how far it goes on: what is smaller is counted there.
FIRST, LAST = 0.5, 1e15


def line(errors: Float64Array) -> str:
    """A bar for each of 16 ranges from 0.5 to the largest error, each a factor wider, "<= 0.5 ▁  ▂█▁ 4.2e+06".

    errors: distances, none below 0. Smaller ones count in the first bar, inf and NaN in the last. The height goes by
    the root of the number, so that a few of many show; a range without any is a space. "" without elements.
    """
    if not errors.size:
        return ""
    with np.errstate(invalid="ignore"):
        values = np.clip(np.nan_to_num(errors.ravel(), nan=LAST, posinf=LAST), FIRST, LAST)
    top = float(values.max())
    if top <= FIRST:
        return f"all at most {FIRST:g}"
    place = np.log(values / FIRST) / np.log(top / FIRST) * COLUMNS
    counts = np.bincount(np.minimum(place.astype(np.int64), COLUMNS - 1), minlength=COLUMNS)
    heights = np.ceil(np.sqrt(counts / counts.max()) * len(BLOCKS)).astype(np.int64)
    bars = "".join(BLOCKS[height - 1] if height else " " for height in heights.tolist())
    end = "not finite" if top >= LAST else f"{top:.2g}"
    return f"<= {FIRST:g} {bars} {end}"
