"""The verdict on a collective, for each rank that took part: what it received against what all ranks sent;
and what a wrong result looks like: a rank that is missing, a sum divided by another number, an older dtype."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.errors import ProbeError, RecordError, Unsupported
from pytest_probe.features.collectives.matching import NOTHING, Match, named
from pytest_probe.features.collectives.reduction_check import RankInputs, RankVerdict, element, is_explained, judge
from pytest_probe.model.collective import REDUCING, Collective, Piece
from pytest_probe.model.verdict import Outcome, OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import (
    NARROW_DTYPES,
    AnyArray,
    dtype_name,
    is_complex,
    is_inexact,
    numpy_dtype,
    round_to,
    widen,
)
from pytest_probe.system.machine import out_of_memory

STANDARD = "collective"
# The kind of a skip.
STATISTICS = "statistics alone"
# What gives a rank's tensor; raises RecordError.
Load: TypeAlias = Callable[[int, Piece], AnyArray]
# The calls of a rank before this one that received as much, the latest first, and what each of them received.
Earlier: TypeAlias = Callable[[int], Iterable[tuple[str, AnyArray]]]


# What each rank sent, as flat arrays, and what it received; None where that is not known.
Sent: TypeAlias = Mapping[int, AnyArray]
Received: TypeAlias = Mapping[int, "AnyArray | None"]


def verdicts(match: Match, load: Load, earlier: Earlier) -> Mapping[int, Verdict]:
    """The verdict for each rank."""
    try:
        wrong = match.disagreement()
        if wrong:
            return dict.fromkeys(match.parts, Verdict("error", STANDARD, wrong))
        sent, received = dict[int, AnyArray](), dict[int, "AnyArray | None"]()
        for rank, part in match.parts.items():
            one = part.collective
            for piece in (*one.sent, *one.received):
                if piece.spec.size and piece.spec.data_name is None:
                    reason = f"{piece.entry}: {piece.field}: the dump has statistics of it alone"
                    raise Unsupported(f"{reason}; record with task=tensor, or replay it with --probe-ranks", STATISTICS)
            sent[rank] = flat([load(rank, piece) for piece in one.sent])
            received[rank] = flat([load(rank, piece) for piece in one.received]) if one.received else None
        return _Judging(match, sent, received, earlier).verdicts()
    except (Unsupported, RecordError) as error:
        return dict.fromkeys(match.parts, skipped(error))
    except MemoryError as error:
        return dict.fromkeys(match.parts, skipped(out_of_memory(error)))


def exchange_verdicts(match: Match, sent: Sent, received: Received) -> Mapping[int, Verdict]:
    """The same of what was exchanged. Raises Unsupported."""
    return _Judging(match, sent, received).verdicts()


def skipped(error: ProbeError) -> Verdict:
    return Verdict("skip", STANDARD, str(error), getattr(error, "kind", ""))


def flat(arrays: Sequence[AnyArray]) -> AnyArray:
    """One after the other, in one row."""
    if not arrays:
        return np.empty(0, np.float32)
    return np.concatenate([np.asarray(each).reshape(-1) for each in arrays])


class _Judging:
    def __init__(self, match: Match, sent: Sent, received: Received, earlier: Earlier = lambda rank: ()) -> None:
        self._match = match
        self._one = match.first
        self._sent, self._received = sent, received
        self._ranks = tuple(match.parts)
        self._earlier = earlier
        # Ranks that have the same bits have the same verdict.
        self._passed: dict[bytes, Verdict] = {}

    def verdicts(self) -> Mapping[int, Verdict]:
        """All ranks have the same bits of a sum for all. A rank with other bits than most is wrong, or, where there
        is no majority, with other bits than an order of the addends explains."""
        found = {rank: self._of(rank) for rank in self._ranks}
        if self._one.kind != "reduced to all":
            return found
        known = {rank: each for rank, each in self._received.items() if each is not None}
        prints = {rank: _print(each) for rank, each in known.items() if found[rank].verdict != "skip"}
        right = self._right(prints) if len(set(prints.values())) > 1 else None
        for rank, each in prints.items():
            if len(set(prints.values())) > 1 and each != right:
                found[rank] = self._differing(rank, prints, right, found[rank])
        return found

    def _of(self, rank: int) -> Verdict:
        one = self._match.parts[rank].collective
        if one.kind in ("sent", "nothing") or (one.kind in ("reduced to one", "all to one") and rank != one.root):
            return Verdict("skip", STANDARD, f"{one.api}: this rank receives nothing", NOTHING)
        if one.waited is False:
            reason = f"{one.api} was never waited for: what it writes to was read, or left, before the result was there"
            return Verdict("error", STANDARD, reason)
        received = self._received[rank]
        if received is None:
            words = "its result was not there when the step ended" if one.waited is None else "the dump has no result"
            return Verdict("skip", STANDARD, f"{one.api}: {words}", STATISTICS)
        return self._reduced(rank, received) if one.kind in REDUCING else self._moved(rank, received)

    def _reduced(self, rank: int, received: AnyArray) -> Verdict:
        addends = self._addends(rank)
        if addends.terms[0].size != received.size:
            reason = f"{addends.terms[0].size:,} elements were sent, {received.size:,} received"
            return Verdict("error", STANDARD, reason, dtype=_dtype(received))
        same = _print(received)
        if self._one.kind == "reduced to all" and same in self._passed:
            return self._passed[same]
        found = judge(received, addends)
        cause = ""
        if found.reason:
            cause = cause_of_sum(received, addends, self._ranks, rank) or self._stale(rank, received)
        verdict = _verdict(self._one, received, found, cause)
        if verdict.verdict == "pass":
            self._passed[same] = verdict
        return verdict

    def _addends(self, rank: int) -> RankInputs:
        whole = next(iter(self._sent.values())).dtype.kind in "iub"
        if self._one.reduction == "unknown" or (whole and self._one.reduction == "average"):
            raise Unsupported(f"{self._one.api}: a reduction that is not known here", NOTHING)
        terms = [self._sent[each] for each in self._ranks]
        if self._one.kind == "reduced in parts":
            start, stop = self._part(self._ranks[0], rank)
            terms = [each[start:stop] for each in terms]
        return RankInputs(terms, self._one.reduction)

    def _part(self, sender: int, receiver: int) -> tuple[int, int]:
        """Where a receiver's part begins and ends in what a sender sent."""
        sizes, place = self._match.parts[sender].collective.sizes, self._ranks.index(receiver)
        if sizes is None:
            width = self._sent[sender].size // len(self._ranks)
            return place * width, (place + 1) * width
        return sum(sizes[:place]), sum(sizes[: place + 1])

    def _moved(self, rank: int, received: AnyArray) -> Verdict:
        pieces = list(self._pieces(rank))
        expected = flat(pieces)
        if expected.size != received.size or expected.dtype != received.dtype:
            reason = (
                f"{expected.size:,} elements of {_dtype(expected)} were sent to it, "
                f"{received.size:,} of {_dtype(received)} received"
            )
            return Verdict("error", STANDARD, reason, dtype=_dtype(received))
        wrong = _bits(received) != _bits(expected)
        if not wrong.any():
            return _verdict(self._one, received, RankVerdict())
        first = int(np.argmax(wrong))
        reason = (
            f"{int(np.count_nonzero(wrong)):,} of {wrong.size:,} elements have other bits than what was sent, "
            f"the first is {first}: {received[first]}, not {expected[first]}"
        )
        cause = cause_of_order(received, pieces, self._ranks) or self._stale(rank, received)
        worst = tuple(element(int(place), received, expected) for place in np.flatnonzero(wrong)[:5])
        return _verdict(self._one, received, RankVerdict(reason, {"wrong": int(np.count_nonzero(wrong))}, worst), cause)

    def _stale(self, rank: int, received: AnyArray) -> str:
        """Which call before this one had this result, as the cause of an error; "" for none. One value everywhere tells
        nothing: flags and zeros come again."""
        bits = _bits(received)
        if (bits == bits[:1]).all():
            return ""
        same = _print(received)
        stale = next((name for name, each in self._earlier(rank) if _print(each) == same), None)
        return "" if stale is None else f"it is the result of {stale}, an earlier call"

    def _pieces(self, rank: int) -> Iterator[AnyArray]:
        """What each rank sent to this one."""
        one = self._match.parts[rank].collective
        root = self._one.root
        if one.kind == "received":
            # The other side of a message may be the same rank.
            yield self._sent[next((each for each in self._ranks if each != rank), rank)]
        elif one.kind == "one to all" and root is not None:
            yield self._sent[root]
        elif one.kind == "parts of one" and root is not None:
            start, stop = self._part(root, rank)
            yield self._sent[root][start:stop]
        elif one.kind == "parts of all":
            for sender in self._ranks:
                start, stop = self._part(sender, rank)
                yield self._sent[sender][start:stop]
        else:
            yield from (self._sent[sender] for sender in self._ranks)

    def _right(self, prints: Mapping[int, bytes]) -> bytes | None:
        most, many = Counter(prints.values()).most_common(1)[0]
        if many * 2 > len(prints):
            return most
        kinds = {each: self._got(rank) for rank, each in prints.items()}
        if len({each.size for each in kinds.values()}) > 1 or self._addends(self._ranks[0]).exact:
            return None
        one, *others = kinds.values()
        where = np.flatnonzero(np.any([_bits(one) != _bits(each) for each in others], axis=0))
        addends = self._addends(self._ranks[0]).at(where)
        explained = [each for each, array in kinds.items() if is_explained(array[where], addends)]
        return explained[0] if len(explained) == 1 else None

    def _got(self, rank: int) -> AnyArray:
        found = self._received[rank]
        assert found is not None
        return found

    def _differing(self, rank: int, prints: Mapping[int, bytes], right: bytes | None, before: Verdict) -> Verdict:
        alike = [each for each in prints if prints[each] == prints[rank]]
        rest = [each for each in prints if prints[each] != prints[rank] and right in (None, prints[each])]
        one, other = self._got(rank), self._got(rest[0])
        where = np.flatnonzero(_bits(one) != _bits(other)) if one.size == other.size else np.zeros(1, np.intp)
        first = int(where[0])
        reason = (
            f"results differ: {named(alike)} of {len(prints)} {'has' if len(alike) == 1 else 'have'} other bits than "
            f"{named(rest)} in {where.size:,} of {one.size:,} elements, the first is {first}: {one[first]}, and "
            f"{other[first]} on rank {rest[0]}"
        )
        if before.verdict == "error":
            return replace(before, notes=(*before.notes, reason))
        output = replace(before.outputs[0], verdict="error", reason=reason, worst=(element(first, one, other),))
        return replace(before, verdict="error", reason=reason, outputs=(output,))


def _bits(array: AnyArray) -> AnyArray:
    """As integers, element by element; of a wide element as two."""
    width = array.dtype.itemsize
    if width == 16:
        pairs = np.ascontiguousarray(array).view(np.uint64).reshape(-1, 2)
        return pairs[:, 0] ^ (pairs[:, 1] * np.uint64(0x9E3779B97F4A7C15))
    return np.ascontiguousarray(array).view(f"u{width}")


def _print(array: AnyArray) -> bytes:
    """Equal for equal bits; of NaN it does not count which."""
    if is_inexact(array.dtype):
        array = np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array)
    return np.ascontiguousarray(array).tobytes()


def _dtype(array: AnyArray) -> str:
    return dtype_name(array.dtype)


def _verdict(one: Collective, received: AnyArray, found: RankVerdict, cause: str = "") -> Verdict:
    reason = f"{cause}; {found.reason}" if cause else found.reason
    outcome: Outcome = "error" if reason else "pass"
    name, dtype = one.received[0].field if len(one.received) == 1 else "output", _dtype(received)
    output = OutputVerdict(name, received.shape, dtype, outcome, STANDARD, reason, found.metrics, found.worst)
    notes = (f"added up as {found.order}",) if found.order else ()
    return Verdict(outcome, STANDARD, reason, dtype=dtype, outputs=(output,), notes=notes)


# Elements that causes are tried on.
_TRIED = 1 << 14


def cause_of_sum(actual: AnyArray, addends: RankInputs, ranks: Sequence[int], rank: int) -> str:
    """What explains a wrong reduction, "" where nothing does."""
    places = np.arange(0, actual.size, max(1, -(-actual.size // _TRIED)))
    small, some = addends.at(places), actual[places]
    own = ranks.index(rank)
    if np.array_equal(some, small.terms[own]) and not np.array_equal(small.terms[own], small.terms[own - 1]):
        return f"it is what rank {rank} sent: the result has not come, or is not waited for"
    other = next((place for place, each in enumerate(small.terms) if np.array_equal(some, each)), None)
    if other is not None and len({each.tobytes() for each in small.terms}) > 1:
        return f"it is what rank {ranks[other]} sent alone"
    if not is_inexact(actual.dtype) or addends.exact:
        return ""
    narrower = next(_narrower(some, small), "")
    if narrower or addends.reduction not in ("total", "average"):
        return narrower
    return next((words for words, other in _others(small, ranks) if not judge(some, other, named=False).reason), "")


def _narrower(actual: AnyArray, addends: RankInputs) -> Iterator[str]:
    """All results are numbers of a narrower dtype, and not all inputs are."""
    for name in NARROW_DTYPES:
        dtype = numpy_dtype(name)
        if dtype.itemsize >= actual.dtype.itemsize or is_complex(actual.dtype):
            continue

        def holds(array: AnyArray, dtype: np.dtype = dtype) -> bool:
            return bool(np.array_equal(widen(round_to(widen(array), dtype)), widen(array), equal_nan=True))

        if holds(actual) and not all(map(holds, addends.terms)):
            yield f"as if it was reduced in {name}, and not in {actual.dtype.name}"


def _others(addends: RankInputs, ranks: Sequence[int]) -> Iterator[tuple[str, RankInputs]]:
    """Other computations that may have been made: what each is in words, and its addends."""
    terms, count, dtype = list(addends.terms), len(addends.terms), addends.dtype
    used = count if addends.reduction == "average" else 1
    # The terms of a mean as those of a sum.
    parts = terms if used == 1 else [round_to(widen(each) / used, dtype) for each in terms]
    for place, rank in enumerate(ranks if count > 1 else ()):
        yield f"the contribution of rank {rank} is missing", RankInputs(parts[:place] + parts[place + 1 :], "total")
        yield f"the contribution of rank {rank} counts twice", RankInputs([*parts, parts[place]], "total")
    for divisor in range(1, 2 * count + 1):
        if divisor != used:
            divided = [round_to(widen(each) / divisor, dtype) for each in terms]
            yield f"divided by {divisor}, and not by {used}", RankInputs(divided, "total")
    for factor in range(2, count + 1):
        multiplied = [round_to(widen(each) * factor, dtype) for each in terms]
        yield f"{factor} times what it should be", RankInputs(multiplied, addends.reduction)


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
