"""What a call moves and computes, where its API tells: products, elementwise calls, sums of a known number of terms."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from pytest_probe.check.large.contractions import contraction
from pytest_probe.features.timing.subject import Subject

# APIs that read each input element once, and compute about one operation with it.
SUMS = frozenset(("terms_of_reduction", "terms_of_row", "terms_of_exponentials"))


class Work(Struct, frozen=True):
    """Bytes that a call must move at least, and operations: an addition and a multiplication for each term of a
    product, one for each element elsewhere. product: it multiplies matrices, or convolves."""

    bytes: int
    flops: float
    product: bool


def work(subject: Subject) -> Work | None:
    """That of a forward, or of a backward; None where the API is in no list."""
    found = contraction(subject.bound)
    if found is not None and math.isfinite(found.flops):
        factors = found.factors.keys() & _wanted(subject) if subject.call.incoming is not None else {""}
        return Work(_moved(subject), found.flops * len(factors), True)
    if not subject.classes.isdisjoint(SUMS):
        sizes = [leaf.array.size for leaf in subject.leaves.values()]
        return Work(_moved(subject), float(max(sizes, default=0)), False)
    if "elementwise" in subject.classes:
        return Work(_moved(subject), float(sum(math.prod(shape) for shape, _ in subject.outputs.values())), False)
    return None


def _wanted(subject: Subject) -> frozenset[str]:
    return frozenset() if subject.call.wanted is None else subject.call.wanted.names


def _moved(subject: Subject) -> int:
    """Inputs and outputs; of a backward incoming gradients and gradients, and the factors of a product."""
    incoming, leaves = subject.call.incoming, subject.leaves
    if incoming is None:
        return subject.input_bytes + sum(size for _, size in subject.outputs.values())
    found = contraction(subject.bound)
    read = () if found is None else found.factors
    arrays = [*incoming.values(), *(leaves[name].array for name in (*_wanted(subject), *read))]
    return sum(int(np.asarray(array).nbytes) for array in arrays)
