"""A recorded collective made again by processes of this machine, on stored inputs or on generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import RecordError, Unsupported
from pytest_probe.features.collectives.judging import STANDARD, exchange_verdicts, flat, skipped
from pytest_probe.features.collectives.matching import ALONE, NOTHING, Match, Part
from pytest_probe.features.collectives.processes import Processes, RanksFailed
from pytest_probe.inputs.draws import RecordStreams
from pytest_probe.inputs.generated import generate_in
from pytest_probe.model.collective import Piece, RankCall
from pytest_probe.model.dump import Dump
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import AnyArray

# Words of backends that have no kernel for it.
_UNSUPPORTED = ("not support", "unsupported", "not implemented", "Invalid scalar type", "Cannot use ReduceOp")


class Replaying(Struct, frozen=True):
    """How collectives are made again: by which processes, on what. load gives a stored tensor, raises RecordError."""

    processes: Processes
    load: Callable[[Dump, Piece], AnyArray]
    inputs: str
    seed: int

    def verdicts(self, part: Part, match: Match | None) -> Mapping[int, Verdict]:
        """The verdict for each rank, by its number in the dump. match: what all ranks did, None where the dump of a
        rank is missing: this rank's part tells what the others do."""
        try:
            whole = _whole(part, self.processes.ranks) if match is None else match
            wrong = whole.disagreement()
            if wrong:
                return dict.fromkeys(whole.parts, Verdict("error", STANDARD, wrong))
            return self._made(whole)
        except (Unsupported, RecordError) as error:
            return _of_all(part, match, skipped(error))
        except RanksFailed as error:
            if any(word in str(error) for word in _UNSUPPORTED):
                return _of_all(part, match, Verdict("skip", STANDARD, str(error), "unsupported by the device"))
            return _of_all(part, match, Verdict("error", STANDARD, str(error), notes=tuple(error.stacks)))

    def _made(self, match: Match) -> Mapping[int, Verdict]:
        one, count = match.first, len(match.parts)
        if one.kind == "nothing" or one.reduction == "unknown":
            raise Unsupported(f"{one.api}: nothing to compare", NOTHING)
        if count > self.processes.ranks:
            reason = f"{one.api}: its group has {count} ranks, and --probe-ranks={self.processes.ranks} starts fewer"
            raise Unsupported(reason, ALONE)
        sent = {
            rank: flat([self._values(part, rank, piece) for piece in part.collective.sent])
            for rank, part in match.parts.items()
        }
        ranks, calls = _calls(match, sent)
        idle = [replace(calls[0], sent=np.empty(0, np.float32))] * (self.processes.ranks - len(calls))
        received = self.processes.make([*calls, *idle])
        got = {rank: flat(each) if each else None for rank, each in zip(ranks, received, strict=False)}
        # Here it was waited for.
        waited = {rank: replace(part.collective, waited=True) for rank, part in match.parts.items()}
        parts = {rank: replace(part, collective=waited[rank]) for rank, part in match.parts.items()}
        return exchange_verdicts(Match(parts), sent, got)

    def _values(self, part: Part, rank: int, piece: Piece) -> AnyArray:
        """What a rank sends: stored where the dump has it, else numbers of these statistics, others for each rank."""
        template = part.collective.rank != rank
        stored = piece.spec.data_name is not None and not template and self.inputs != "generated"
        if stored:
            return self.load(part.dump, piece)
        if self.inputs == "stored":
            raise Unsupported(f"{piece.entry}: {piece.field}: the dump has statistics of it alone", ALONE)
        stream = RecordStreams(f"{part.record.name}@{rank}", self.seed).at(piece.field)
        try:
            return generate_in(piece.spec, stream, piece.spec.dtype)
        except ValueError as error:  # a dtype that is not known
            raise RecordError(
                part.dump.path, piece.entry, f"{piece.field}.dtype", str(error), "a known dtype"
            ) from None


def _of_all(part: Part, match: Match | None, verdict: Verdict) -> Mapping[int, Verdict]:
    assert part.collective.rank is not None
    return dict.fromkeys(match.parts if match is not None else [part.collective.rank], verdict)


def _whole(part: Part, count: int) -> Match:
    """All ranks do what this one does. Raises Unsupported where they cannot."""
    one = part.collective
    assert one.rank is not None
    if one.kind in ("sent", "received", "parts of one"):
        raise Unsupported(f"{part.record.name}: the dump of the other side is missing", ALONE)
    ranks = one.ranks if len(one.ranks) > 1 else tuple(range(count))
    if one.rank not in ranks:
        raise Unsupported(f"{part.record.name}: rank {one.rank} is not in its group {list(ranks)}", ALONE)
    return Match({rank: replace(part, collective=replace(one, ranks=ranks)) for rank in ranks})


def _calls(match: Match, sent: Mapping[int, AnyArray]) -> tuple[tuple[int, ...], list[RankCall]]:
    """The ranks in the order of their processes, and what each does. A message goes from the first to the second."""
    ranks, one = tuple(match.parts), match.first
    if one.kind in ("sent", "received"):
        sender = next(rank for rank, part in match.parts.items() if part.collective.kind == "sent")
        ranks = (sender, *(rank for rank in ranks if rank != sender))
        if len(ranks) == 1:
            raise Unsupported(f"{one.api}: a message of a rank to itself", NOTHING)
    # The elements that go to each rank.
    sizes: dict[int, tuple[int, ...]] = {}
    for rank, part in match.parts.items():
        edges = [sent[rank].size * place // len(ranks) for place in range(len(ranks) + 1)]
        even = tuple(stop - start for start, stop in pairwise(edges))
        sizes[rank] = even if part.collective.sizes is None else part.collective.sizes
    root = ranks.index(one.root) if one.root in ranks else 0
    dtype = next(each.dtype for each in sent.values() if each.size) if any(map(np.size, sent.values())) else np.float32
    calls = []
    for place, rank in enumerate(ranks):
        own = match.parts[rank].collective
        # The sizes of what it receives.
        pieces = tuple(sent[each].size for each in ranks)
        if one.kind in ("reduced in parts", "parts of one"):
            pieces = (sizes[ranks[root]][place],)
        elif one.kind == "parts of all":
            pieces = tuple(sizes[each][place] for each in ranks)
        elif one.kind in ("sent", "received"):
            pieces = pieces[:1]
        calls.append(
            RankCall(
                one.kind,
                one.reduction,
                len(ranks),
                1 if one.kind in ("sent", "received") else root,
                sent[rank].astype(dtype, copy=False) if sent[rank].size else np.empty(0, dtype),
                pieces,
                sizes[rank],
                len(own.received) > 1 or len(own.sent) > 1,
            )
        )
    return ranks, calls
