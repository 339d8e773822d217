"""In which order the addends of several ranks may meet, and what each order gives in the dtype between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from pytest_probe.model.collective import Reduction
from pytest_probe.numerics.dtypes import AnyArray, round_to, widen

_Both: TypeAlias = Callable[[AnyArray, AnyArray], AnyArray]
# Rings begin anywhere: of many ranks so many beginnings are tried.
_STARTS = 8


def reference(terms: Sequence[AnyArray], reduction: Reduction) -> AnyArray:
    """The operation on all ranks' flat arrays of one shape, in float64; of integers in their own dtype."""
    wide = [each if each.dtype.kind in "iub" else widen(each) for each in terms]
    found = wide[0]
    with np.errstate(all="ignore"):
        for each in wide[1:]:
            found = _OPERATIONS[reduction](found, each)
        return found / len(terms) if reduction == "average" else found


_OPERATIONS: Mapping[Reduction, np.ufunc] = {
    "total": np.add,
    "average": np.add,
    "product": np.multiply,
    "largest": np.maximum,
    "least": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "exclusive or": np.bitwise_xor,
}


def orders(terms: Sequence[AnyArray], reduction: Reduction) -> Iterator[tuple[str, AnyArray]]:
    """What legitimate ways of adding (or multiplying) give in the terms' floating dtype, as float64, each with its
    name. A mean is divided before, by a reciprocal, or behind."""
    dtype = terms[0].dtype
    for name, compute in (("", dtype), ("float32 inside", np.dtype(np.float32))):
        if name and dtype.itemsize >= compute.itemsize:
            continue
        for divided in ("before", "multiplied", "behind") if reduction == "average" else ("",):
            given = _scaled(terms, compute, divided)
            for kind, found in _in(given, compute, reduction):
                if divided == "behind":
                    found = round_to(widen(found) / len(terms), compute)
                yield name or f"{kind} in {dtype.name}", widen(round_to(widen(found), dtype))


def _scaled(terms: Sequence[AnyArray], dtype: np.dtype, divided: str) -> list[AnyArray]:
    """Divided before by their number, or multiplied by its reciprocal in the dtype."""
    factor = 1.0
    if divided == "before":
        factor = 1 / len(terms)
    if divided == "multiplied":
        factor = float(round_to(np.asarray(1 / len(terms)), dtype))
    with np.errstate(all="ignore"):
        return [round_to(widen(each) * factor, dtype) for each in terms]


def _in(terms: Sequence[AnyArray], dtype: np.dtype, reduction: Reduction) -> Iterator[tuple[str, AnyArray]]:
    count = len(terms)

    def both(one: AnyArray, other: AnyArray) -> AnyArray:
        with np.errstate(all="ignore"):
            # The sum or product of two numbers of a narrower format, rounded twice, is rounded once.
            if dtype.itemsize >= 4:
                return np.asarray(_OPERATIONS[reduction](one, other))
            return round_to(_OPERATIONS[reduction](widen(one), widen(other)), dtype)

    yield "tree", _tree(terms, both, neighbours=True)
    if count > 2:
        yield "tree", _tree(terms, both, neighbours=False)
        step = max(1, count // _STARTS)
        for ring in (list(terms), list(reversed(terms))):
            for start in range(0, count, step):
                found = ring[start]
                for place in range(1, count):
                    found = both(found, ring[(start + place) % count])
                yield "ring", found


def _tree(terms: Sequence[AnyArray], both: _Both, *, neighbours: bool) -> AnyArray:
    """Neighbours first, or the ranks that are farthest apart."""
    left = list(terms)
    while len(left) > 1:
        half = (len(left) + 1) // 2
        ones, others = (left[::2], left[1::2]) if neighbours else (left[:half], left[half:])
        left = [*map(both, ones, others), *ones[len(others) :]]
    return left[0]
