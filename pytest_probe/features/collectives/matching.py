"""Which calls of the ranks of a step are one collective: those of one group and one function, in their order; of
messages those of one sender and one receiver."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe import frameworks
from pytest_probe.errors import RecordError, Unsupported
from pytest_probe.model.collective import NAMESPACES, ROOTED, Collective, Collectives
from pytest_probe.model.dump import Dump, GroupSpec, Record

# The kinds of skips.
ALONE, UNMATCHED, NOTHING = "ranks missing", "calls of ranks do not match", "nothing received"


class Part(Struct, frozen=True):
    """One rank's part in a collective; number is its place among those of its record."""

    dump: Dump
    record: Record
    collective: Collective
    number: int = 0


class Match(Struct, frozen=True):
    """A collective, by the part of each rank, in the order of the group."""

    parts: Mapping[int, Part]

    @property
    def first(self) -> Collective:
        return next(iter(self.parts.values())).collective

    def disagreement(self) -> str:
        """How ranks contradict each other, which no collective can hold; "" where they don't."""
        found: dict[str, dict[int, object]] = {"root": {}, "reduction": {}, "dtype": {}, "sizes": {}}
        for rank, part in self.parts.items():
            one = part.collective
            if one.kind in ROOTED:
                found["root"][rank] = one.root
            if one.kind.startswith("reduced"):
                found["reduction"][rank] = one.reduction
            found["dtype"][rank] = " and ".join(sorted({each.spec.dtype for each in (*one.sent, *one.received)}))
            pieces = one.received if one.kind == "received" else one.sent
            if pieces and self.first.kind.startswith(("reduced", "one to all", "sent", "received")):
                found["sizes"][rank] = sum(piece.spec.size for piece in pieces)
        for name, values in found.items():
            known = [(rank, each) for rank, each in values.items() if each not in (None, "")]
            for rank, each in known:
                first, value = known[0]
                if each != value:
                    return f"ranks disagree on {name}: rank {first} has {value}, rank {rank} {each}"
        return ""


_Key: TypeAlias = "tuple[object, ...]"


class Step:
    """The dumps of one step, by rank. Records that cannot be read are missing in it."""

    def __init__(self, dumps: Mapping[int, Dump]) -> None:
        self._dumps = dumps

    @cached_property
    def _parts(self) -> Mapping[tuple[Path, str], list[Part]]:
        """Those of each record."""
        groups = dict(self._groups())
        found: dict[tuple[Path, str], list[Part]] = {}
        for rank, dump in self._dumps.items():
            for record, api in calls_of(dump):
                try:
                    ones = api.bind(record.name, record.api, dump.decode(record), groups)
                except (RecordError, Unsupported):
                    continue
                found[dump.path, record.name] = []
                for number, one in enumerate(ones):
                    # Its rank and group, where its record says nothing of them.
                    own = rank if one.rank is None else one.rank
                    placed = replace(one, rank=own, ranks=one.ranks or tuple(sorted(self._dumps)))
                    found[dump.path, record.name].append(Part(dump, record, placed, number))
        return found

    def _groups(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The ranks of each group by the name that dumps give it, the checksum of its ranks."""
        world = tuple(sorted(self._dumps))
        yield _name(world), world
        for dump in self._dumps.values():
            for record, _ in calls_of(dump):
                if (call := dump.readable(record)) is None:
                    continue
                if call.communication is not None and call.communication.ranks:
                    yield _name(call.communication.ranks), call.communication.ranks
                for value in (*call.args, *call.kwargs.values()):
                    if isinstance(value, GroupSpec):
                        yield _name(value.ranks), value.ranks

    @cached_property
    def _sequences(self) -> Mapping[_Key, list[Part]]:
        """The calls of each rank in each group, in their order."""
        found: defaultdict[_Key, list[Part]] = defaultdict(list)
        for parts in self._parts.values():
            for part in parts:
                found[_key(part.collective, part.collective.rank)].append(part)
        for sequence in found.values():
            # By their places among the calls of the rank. Without one they are in the order of the dump.
            sequence.sort(key=lambda part: (part.collective.order is not None, part.collective.order or 0, part.number))
        return found

    def parts(self, dump: Dump, record: Record) -> Sequence[Part]:
        """Those of a record. Raises RecordError, or Unsupported, for any other record."""
        found = self._parts.get((dump.path, record.name))
        if found is None:
            api = frameworks.collectives(dump.framework)
            assert api is not None
            api.bind(record.name, record.api, dump.decode(record), {})
        return found or ()

    def match(self, part: Part) -> Match:
        """The collective that this is a part of. Raises Unsupported where ranks are missing, or made other calls."""
        one = part.collective
        assert one.rank is not None
        ranks = one.ranks
        if one.kind in ("sent", "received"):
            if one.root is None:
                raise Unsupported(f"{part.record.name}: the record does not say which rank sent it", UNMATCHED)
            ranks = (one.rank, one.root)
        missing = [rank for rank in ranks if rank not in self._dumps]
        if missing:
            reason = (
                f"{part.record.name}: of the group of ranks {listed(ranks)} the dump of {listed(missing)} is missing"
            )
            raise Unsupported(f"{reason}; give the dumps of all ranks, or replay it with --probe-ranks", ALONE)
        sequences = {rank: self._sequences[_key(one, rank)] for rank in ranks}
        counts = {rank: len(each) for rank, each in sequences.items()}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"rank {rank} {count}" for rank, count in counts.items())
            reason = f"{part.record.name}: the ranks of its group made other numbers of calls of {one.api}: {told}"
            raise Unsupported(reason, UNMATCHED)
        place = _index(part, sequences[one.rank])
        return Match({rank: each[place] for rank, each in sequences.items()})

    def earlier(self, part: Part) -> Sequence[Part]:
        """The calls of its rank before it, of its group and its function, the latest first; of a part of a later step
        all of them."""
        sequence = self._sequences[_key(part.collective, part.collective.rank)]
        return sequence[: _index(part, sequence)][::-1]


def _index(part: Part, sequence: Sequence[Part]) -> int:
    return next((index for index, each in enumerate(sequence) if each is part), len(sequence))


def _key(one: Collective, rank: int | None) -> _Key:
    """Of a message its sender and receiver, and the side that this rank is."""
    if one.kind in ("sent", "received"):
        side = one.kind if rank == one.rank else {"sent": "received", "received": "sent"}[one.kind]
        pair = (one.rank, one.root) if one.kind == "sent" else (one.root, one.rank)
        return (side, *pair)
    return (one.api, one.ranks, rank)


def calls_of(dump: Dump) -> Iterator[tuple[Record, Collectives]]:
    """The records of collectives that somebody knows."""
    api = frameworks.collectives(dump.framework)
    if api is not None:
        yield from ((record, api) for record in dump.records if record.namespace in NAMESPACES)


def _name(ranks: Sequence[int]) -> str:
    return f"{zlib.crc32(str(list(ranks)).encode()):08x}"


def listed(ranks: Sequence[int]) -> str:
    """ "0 to 7" or "0, 2, 5"."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


def named(ranks: Sequence[int]) -> str:
    """ "rank 3" or "ranks 0 to 7"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed(ranks)}"
