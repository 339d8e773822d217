"""A collective that processes make: a recorded one made again, on stored inputs or on generated ones; and one of the
user's own, which a test names and each rank calls with its own input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.check import Case, CaseOutcome
from pytest_probe.errors import RecordError, SettingsError, Unsupported
from pytest_probe.features.collectives.judging import STANDARD, exchange_verdicts, flat, skipped
from pytest_probe.features.collectives.matching import ALONE, NOTHING, Match, Part
from pytest_probe.features.collectives.processes import LocalRanks, Processes, RanksFailed
from pytest_probe.inputs.draws import RecordStreams
from pytest_probe.inputs.generated import generate_in
from pytest_probe.model.collective import Collective, Piece, RankCall
from pytest_probe.model.dump import Call, Dump, Record
from pytest_probe.model.verdict import Verdict
from pytest_probe.numerics.dtypes import AnyArray

# Words of backends that have no kernel for it.
_UNSUPPORTED = ("not support", "unsupported", "not implemented", "Invalid scalar type", "Cannot use ReduceOp")
_WHERE = "check_collective"


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


class UserCollectives(Struct):
    """The processes of a test run, on this machine: one set for each number of ranks and each backend. timeout: as of
    Processes."""

    timeout: float
    started: dict[tuple[int, str], Processes]

    def checked(
        self,
        function: Callable[..., Any],
        reference: str,
        inputs: Sequence[Any],
        ranks: int | None,
        backend: str,
    ) -> list[CaseOutcome]:
        """What the check of each rank leaves. Raises SettingsError for what cannot be checked."""
        given = [frameworks.array_of(each) for each in inputs]
        if len(given) < 2 or (ranks is not None and ranks != len(given)):
            raise SettingsError(f"{_WHERE}: inputs", len(given), f"give one for each of {ranks or 'at least 2'} ranks")
        if len({(each.dtype, each.shape) for each in given}) > 1:
            kinds = "tensors of several shapes or dtypes"
            raise SettingsError(f"{_WHERE}: inputs", kinds, "give all ranks one of each")
        api = frameworks.collectives(frameworks.DEFAULT)
        assert api is not None
        if reference not in api.REFERENCES:
            raise SettingsError(f"{_WHERE}: reference", reference, f"give one of {', '.join(api.REFERENCES)}")
        kind, reduction = api.REFERENCES[reference]
        place = _place(function)
        name = place[2]
        numbers = tuple(range(len(given)))
        parts, call = dict[int, Part](), Call((), {}, None, None)
        for rank in numbers:
            record = Record(name, "", name, rank, b"", b"")
            dump = Dump(Path(), frameworks.DEFAULT, "", "", (record,), lambda _: call, lambda _: ())
            parts[rank] = Part(dump, record, Collective(name, kind, numbers, rank, reduction, 0))
        calls = [RankCall(kind, reduction, len(given), 0, each, (), function=place) for each in given]
        key = len(given), backend
        processes = self.started.setdefault(key, Processes(LocalRanks(), *key, api.PROGRAM, self.timeout))
        try:
            received = [flat(each) for each in processes.make(calls)]
            sent = {rank: each.reshape(-1) for rank, each in enumerate(given)}
            found = exchange_verdicts(Match(parts), sent, dict(enumerate(received)))
        except Unsupported as error:
            found = dict.fromkeys(numbers, skipped(error))
        except RanksFailed as error:
            found = dict.fromkeys(numbers, Verdict("error", STANDARD, str(error), notes=tuple(error.stacks)))
        return [CaseOutcome(Case(parts[rank].dump, parts[rank].record, "forward"), found[rank]) for rank in numbers]

    def close(self) -> None:
        for processes in self.started.values():
            processes.close()


def _place(function: Callable[..., Any]) -> tuple[str, str, str]:
    """The file of a function, its module and its name there. Raises SettingsError where no other process finds it."""
    name, file = getattr(function, "__qualname__", ""), None
    if inspect.isfunction(function) and "<" not in name:
        file = inspect.getsourcefile(function)
    if file is None:
        wanted = "give a function that stands in a module by itself: each rank imports it by its name"
        raise SettingsError(f"{_WHERE}: function", name or repr(function), wanted)
    return str(Path(file).resolve()), function.__module__, name
