"""What a wrong result looks like: a rank that is missing, a sum that was divided by another number, an older dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from pytest_probe.features.collectives.reduced import Addends, judge
from pytest_probe.numerics.dtypes import NARROW_DTYPES, AnyArray, is_complex, is_floating, numpy_dtype, round_to, widen

# Elements that causes are tried on.
_TRIED = 1 << 14


class _Other(Struct, frozen=True):
    """Another computation that may have been made: the addends of it, and what it is in words."""

    words: str
    addends: Addends


def cause_of_sum(actual: AnyArray, addends: Addends, ranks: Sequence[int], rank: int) -> str:
    """What explains a wrong reduction, "" where nothing does."""
    places = np.arange(0, actual.size, max(1, -(-actual.size // _TRIED)))
    small, some = addends.at(places), actual[places]
    own = ranks.index(rank)
    if np.array_equal(some, small.terms[own]) and not np.array_equal(small.terms[own], small.terms[own - 1]):
        return f"it is what rank {rank} sent: the result has not come, or is not waited for"
    other = next((place for place, each in enumerate(small.terms) if np.array_equal(some, each)), None)
    if other is not None and len({each.tobytes() for each in small.terms}) > 1:
        return f"it is what rank {ranks[other]} sent alone"
    if not (is_floating(actual.dtype) or is_complex(actual.dtype)) or addends.exact:
        return ""
    for each in _narrower(some, small):
        return each
    if addends.reduction not in ("total", "average"):
        return ""
    return next((each.words for each in _others(small, ranks) if not judge(some, each.addends, named=False).reason), "")


def _narrower(actual: AnyArray, addends: Addends) -> Iterator[str]:
    """All results are numbers of a narrower dtype, and not all inputs are."""
    for name in NARROW_DTYPES:
        dtype = numpy_dtype(name)
        if dtype.itemsize >= actual.dtype.itemsize or is_complex(actual.dtype):
            continue

        def holds(array: AnyArray, dtype: np.dtype = dtype) -> bool:
            return bool(np.array_equal(widen(round_to(widen(array), dtype)), widen(array), equal_nan=True))

        if holds(actual) and not all(map(holds, addends.terms)):
            yield f"as if it was reduced in {name}, and not in {actual.dtype.name}"


def _others(addends: Addends, ranks: Sequence[int]) -> Iterator[_Other]:
    count, dtype = len(addends.terms), addends.dtype
    for place, rank in enumerate(ranks):
        if count > 1:
            left = [each for index, each in enumerate(addends.terms) if index != place]
            words = f"the contribution of rank {rank} is missing"
            yield _Other(words, Addends(_like(left, addends), "total"))
            words = f"the contribution of rank {rank} counts twice"
            yield _Other(words, Addends(_like([*addends.terms, addends.terms[place]], addends), "total"))
    for divisor in range(1, 2 * count + 1):
        used = count if addends.reduction == "average" else 1
        if divisor != used:
            terms = [round_to(widen(each) / divisor, dtype) for each in addends.terms]
            yield _Other(f"divided by {divisor}, and not by {used}", Addends(terms, "total"))
    for factor in range(2, count + 1):
        terms = [round_to(widen(each) * factor, dtype) for each in addends.terms]
        yield _Other(f"{factor} times what it should be", Addends(terms, addends.reduction))


def _like(terms: Sequence[AnyArray], addends: Addends) -> list[AnyArray]:
    """The terms of a sum, divided as those of a mean are."""
    share = len(addends.terms) if addends.reduction == "average" else 1
    return list(terms) if share == 1 else [round_to(widen(each) / share, addends.dtype) for each in terms]


def cause_of_order(received: AnyArray, pieces: Sequence[AnyArray], ranks: Sequence[int]) -> str:
    """Whose pieces stand in the places of others; "" where that explains nothing."""
    if len(pieces) != len(ranks) or len(pieces) < 2:
        return ""
    start, found = 0, []
    for place, piece in enumerate(pieces):
        there = received[start : start + piece.size].tobytes()
        start += piece.size
        if there != piece.tobytes():
            other = next((index for index, each in enumerate(pieces) if each.tobytes() == there), None)
            if other is None:
                return ""
            found.append(f"in the place of rank {ranks[place]} is what rank {ranks[other]} sent")
    return "; ".join(found[:3])
