"""Two arrays of one shape in matching pieces that stay in a core's cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray


def blocks(actual: AnyArray, expected: AnyArray, size: int) -> Iterator[tuple[AnyArray, AnyArray]]:
    """Matching one-dimensional pieces of at most `size` elements of two arrays of one shape, of whatever strides,
    without a copy of the whole. Pieces of strided arrays share one buffer: use each before asking for the next."""
    if actual.flags.c_contiguous and expected.flags.c_contiguous:
        first, second = actual.reshape(-1), expected.reshape(-1)
        for start in range(0, first.size, size):
            yield first[start : start + size], second[start : start + size]
        return
    # nditer copies into its buffer only what does not lie in order.
    pieces: Any = np.nditer(
        (actual, expected),
        flags=("external_loop", "buffered", "zerosize_ok"),
        op_flags=(("readonly",), ("readonly",)),
        buffersize=size,
    )
    yield from pieces
