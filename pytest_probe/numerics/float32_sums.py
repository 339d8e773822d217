"""Sums in float32 with a known order of terms: the error of such an order is no fault of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray

# One term after another. In lanes, each with a sum of its own: two accumulators, the four or eight numbers of a vector
# register, the 32 threads of a warp. In one part for each thread. Pairwise, the most accurate order of a kernel.
Order: TypeAlias = Literal["sequence", "two_lanes", "four_lanes", "lanes", "warp", "threads", "pairs"]
ORDERS: tuple[Order, ...] = get_args(Order)
Sum: TypeAlias = Callable[[AnyArray], AnyArray]

# Accumulators; float32 numbers in a vector register of 128 bits; in one of 256, for which torch writes its CPU kernels,
# also for wider processors; and in a warp. And the least number of terms of a thread.
LANES: dict[Order, int] = {"two_lanes": 2, "four_lanes": 4, "lanes": 8, "warp": 32}
GRAIN = 32768
# Partial sums in memory at a time.
BLOCK = 1 << 20


def sum_in_order(order: Order, threads: int) -> Sum:
    """The function that adds terms [n, ...] along the first axis in float32, in that order."""
    if order in LANES:
        return lambda terms: in_lanes(terms, LANES[order])
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


def in_lanes(terms: AnyArray, lanes: int) -> AnyArray:
    """The same with one sum for each lane; these sums are added one after another, and then the terms that are left."""
    whole = len(terms) // lanes * lanes
    sums = in_sequence(terms[:whole].reshape(-1, lanes, *terms.shape[1:]))
    return in_sequence(np.concatenate([sums, terms[whole:].astype(np.float32)]))


def in_threads(terms: AnyArray, threads: int) -> AnyArray:
    """The same in one sum for each thread's share of the terms, which are added one after another."""
    share = max(GRAIN, -(-len(terms) // threads))
    parts = [in_sequence(terms[start : start + share]) for start in range(0, len(terms), share)]
    return in_sequence(np.stack(parts)) if parts else in_sequence(terms)


def in_pairs(terms: AnyArray) -> AnyArray:
    """The same pairwise, as NumPy adds along a contiguous axis."""
    rows = np.ascontiguousarray(np.moveaxis(terms.astype(np.float32), 0, -1))
    return np.asarray(np.add.reduce(rows, axis=-1, dtype=np.float32))
