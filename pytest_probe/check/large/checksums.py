"""Checksums: blocks of one dimension of a tensor, each summed with random signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import AnyArray, float_format, widen

# Elements: 32 MiB of float64, where a wide copy of the whole would be gigabytes.
CHUNK = 1 << 22


class Checksums(Struct, frozen=True):
    """Blocks of `size` places, the last one perhaps shorter, and a sign for each place.

    Random signs keep what all elements share (a kernel that cuts instead of rounding) from adding up.
    """

    signs: AnyArray
    size: int

    @classmethod
    def of(cls, extent: int, size: int, random: np.random.Generator) -> Checksums:
        """Of so many places, with random signs."""
        return cls(random.integers(0, 2, extent) * 2.0 - 1.0, min(extent, size))

    def signed(self, array: AnyArray, axis: int) -> AnyArray:
        """The sums of blocks, in float64, one in the place of each block."""
        signs = self.signs.reshape([-1 if dim == axis else 1 for dim in range(array.ndim)])
        return self._summed(array, axis, lambda part: part * signs)

    def rounding(self, array: AnyArray, axis: int) -> AnyArray:
        """The standard deviation of such sums where each element was rounded to the array's dtype: u |x| / sqrt(3) an
        element, which is ulp / sqrt(12) at powers of two and less elsewhere."""
        roundoff = float_format(array.dtype).roundoff
        return np.asarray(np.sqrt(self._summed(array, axis, np.square) / 3) * roundoff)

    def places(self, blocks: AnyArray, size: int) -> AnyArray:
        """The places of the first blocks that have about so many between them, of one at least."""
        extent = len(self.signs)
        taken = blocks[: max(1, size // self.size)]
        return np.concatenate([np.arange(block * self.size, min((block + 1) * self.size, extent)) for block in taken])

    def _summed(self, array: AnyArray, axis: int, change: Callable[[AnyArray], AnyArray]) -> AnyArray:
        """Chunk by chunk along another dimension, lest a wide copy of the whole be held."""
        starts = np.arange(0, array.shape[axis], self.size)
        other = 0 if axis else array.ndim - 1
        if array.ndim == 1 or array.size <= CHUNK:
            return np.add.reduceat(change(widen(array)), starts, axis=axis)
        step = max(1, CHUNK * array.shape[other] // array.size)
        chunks = (
            array[(slice(None),) * other + (slice(first, first + step),)]
            for first in range(0, array.shape[other], step)
        )
        return np.concatenate(
            [np.add.reduceat(change(widen(chunk)), starts, axis=axis) for chunk in chunks], axis=other
        )
