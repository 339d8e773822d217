"""Sums in float32 that add their terms in an order that is known: what such an order loses is no fault of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray

# One term after another; in eight lanes, as a vector register holds them, which are added at the end; in as many parts
# as there are threads, each one after another; or pairwise, as kernels do that lose nothing.
Order: TypeAlias = Literal["sequence", "lanes", "threads", "pairs"]
ORDERS: tuple[Order, ...] = ("sequence", "lanes", "threads", "pairs")
Sum: TypeAlias = Callable[[AnyArray], AnyArray]

# Numbers of float32 in the vector register of 256 bits that the kernels of torch's CPU are written for, also where the
# processor has wider ones; and the terms that a thread takes at least.
LANES, GRAIN = 8, 32768
# Partial sums that are held at a time.
BLOCK = 1 << 20


def adding(order: Order, threads: int) -> Sum:
    """What adds terms, of shape [n, ...], along their first axis in float32, in that order."""
    if order == "lanes":
        return in_lanes
    if order == "pairs":
        return in_pairs
    return in_sequence if order == "sequence" else lambda terms: in_threads(terms, threads)


def in_sequence(terms: AnyArray) -> AnyArray:
    """The sum of terms [n, ...] along the first axis, each added to the sum of all before it; zeros for n = 0."""
    total = np.zeros(terms.shape[1:], np.float32)
    rows = max(1, BLOCK // max(total.size, 1))
    for start in range(0, len(terms), rows):
        block = terms[start : start + rows].astype(np.float32)
        block[0] += total
        # Not add.reduce, which adds pairwise where the axis is contiguous.
        total = np.add.accumulate(block, axis=0)[-1]
    return np.asarray(total)


def in_lanes(terms: AnyArray) -> AnyArray:
    """The same in eight sums of every eighth term, which are added one after another before the terms that are left."""
    whole = len(terms) // LANES * LANES
    lanes = in_sequence(terms[:whole].reshape(-1, LANES, *terms.shape[1:]))
    return in_sequence(np.concatenate([lanes, terms[whole:].astype(np.float32)]))


def in_threads(terms: AnyArray, threads: int) -> AnyArray:
    """The same in one sum for each thread's share of the terms, which are added one after another."""
    share = max(GRAIN, -(-len(terms) // threads))
    parts = [in_sequence(terms[start : start + share]) for start in range(0, len(terms), share)]
    return in_sequence(np.stack(parts)) if parts else in_sequence(terms)


def in_pairs(terms: AnyArray) -> AnyArray:
    """The same pairwise, as NumPy adds along a contiguous axis."""
    rows = np.ascontiguousarray(np.moveaxis(terms.astype(np.float32), 0, -1))
    return np.asarray(np.add.reduce(rows, axis=-1, dtype=np.float32))
