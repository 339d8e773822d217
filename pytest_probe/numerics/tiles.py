"""Do errors depend on the place in a tile? Winograd's convolutions transform tiles of outputs, and err most in a corner
of each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray

# Outputs on a side of a tile. Of a gradient of the weight all places of the kernel are one tile.
SIDES = (2, 4)
# How many times as much a place errs as another, as medians, which a few wrong elements do not change. Winograd's F4 of
# 3 and of 5 places gives 3.0 to 12 where it needs wider limits, a plain sum of 1,000 tiles 1.3 at most.
UNEVEN = 1.5
# Fewer tiles tell nothing; and so many elements tell enough.
FEW_TILES, ENOUGH = 16, 2**18


def may_come_in_tiles(errors: AnyArray, rank: int) -> bool:
    """Do the errors of a convolution over so many last dimensions come from tiles, or are there too few to tell?"""
    extents = errors.shape[-min(rank, 2) :]
    planes = np.abs(errors).reshape(-1, *extents)
    planes = planes[: max(1, ENOUGH // max(planes[0].size, 1))] if len(planes) else planes
    return any(_uneven(planes, [min(side, extent) for extent in extents]) for side in SIDES)


def _uneven(planes: AnyArray, sides: Sequence[int]) -> bool:
    places = [
        planes[(slice(None), *(slice(first, None, side) for first, side in zip(place, sides, strict=True)))]
        for place in itertools.product(*map(range, sides))
    ]
    if min((each.size for each in places), default=0) < FEW_TILES:
        return True
    medians = [float(np.median(each)) for each in places]
    return max(medians) > UNEVEN * min(medians)
