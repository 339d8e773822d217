"""What a wrong result looks like: a rank that is missing, a sum that was divided by another number, an older dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_probe.features.collectives.reduced import Addends, judge
from pytest_probe.numerics.dtypes import NARROW_DTYPES, AnyArray, is_complex, is_floating, numpy_dtype, round_to, widen

# Elements that causes are tried on.
_TRIED = 1 << 14


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
    narrower = next(_narrower(some, small), "")
    if narrower or addends.reduction not in ("total", "average"):
        return narrower
    return next((words for words, other in _others(small, ranks) if not judge(some, other, named=False).reason), "")


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


def _others(addends: Addends, ranks: Sequence[int]) -> Iterator[tuple[str, Addends]]:
    """Other computations that may have been made: what each is in words, and its addends."""
    terms, count, dtype = list(addends.terms), len(addends.terms), addends.dtype
    used = count if addends.reduction == "average" else 1
    # The terms of a mean as those of a sum.
    parts = terms if used == 1 else [round_to(widen(each) / used, dtype) for each in terms]
    for place, rank in enumerate(ranks if count > 1 else ()):
        yield f"the contribution of rank {rank} is missing", Addends(parts[:place] + parts[place + 1 :], "total")
        yield f"the contribution of rank {rank} counts twice", Addends([*parts, parts[place]], "total")
    for divisor in range(1, 2 * count + 1):
        if divisor != used:
            divided = [round_to(widen(each) / divisor, dtype) for each in terms]
            yield f"divided by {divisor}, and not by {used}", Addends(divided, "total")
    for factor in range(2, count + 1):
        multiplied = [round_to(widen(each) * factor, dtype) for each in terms]
        yield f"{factor} times what it should be", Addends(multiplied, addends.reduction)


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
