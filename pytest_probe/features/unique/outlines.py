"""Records whose entries have the same text but for what the values of their tensors decide: they are alike, and of all
of them only those change what stands for them that have the largest or least number somewhere. To read the numbers
takes a fifth of the time of decoding a record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import compress
from operator import gt, lt
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from pytest_probe.model.dump import Dump, Record

T = TypeVar("T")
_Key: TypeAlias = "tuple[object, ...]"
_NUMBERS = msgspec.json.Decoder(list[int | float])


class Outline(Struct, frozen=True):
    """A record's text without the numbers, by a digest, and those of the numbers that tell how wide a call is."""

    key: _Key
    largest: list[float]
    least: list[float]


class _Alike(Generic[T]):
    """Records with one outline: what stands for them, their extremes, and the first record that has each, by its place
    in the dump; None where it has been decoded."""

    __slots__ = ("largest", "least", "whole", "widest")

    def __init__(self, whole: T, outline: Outline) -> None:
        self.whole = whole
        self.largest = outline.largest
        self.least = outline.least
        self.widest: list[tuple[int, Record] | None] = [None] * (len(self.largest) + len(self.least))

    def widen(self, outline: Outline, place: int, record: Record) -> None:
        wider = (*map(gt, outline.largest, self.largest), *map(lt, outline.least, self.least))
        if any(wider):
            self.largest = [*map(max, self.largest, outline.largest)]
            self.least = [*map(min, self.least, outline.least)]
            for index in compress(range(len(wider)), wider):
                self.widest[index] = place, record


class Outlines(Generic[T]):
    """The records of one dump by their outlines, and what stands for them. An outline counts from its second record on,
    since in some dumps each record has another one."""

    def __init__(self) -> None:
        self._seen: set[_Key] = set()
        self._alike: dict[_Key, _Alike[T]] = {}

    def known(self, outline: Outline, place: int, record: Record) -> T | None:
        """What stands for the record; None where it has to be decoded, and put here."""
        found = self._alike.get(outline.key)
        if found is None:
            return None
        found.widen(outline, place, record)
        return found.whole

    def put(self, outline: Outline, whole: T) -> None:
        """A record that was decoded."""
        if outline.key in self._seen:
            self._alike[outline.key] = _Alike(whole, outline)
        self._seen.add(outline.key)

    def widening(self) -> Iterator[tuple[T, Record]]:
        """What stands for the records that were known, and those of them that make it wider, in their order."""
        for found in self._alike.values():
            for _, record in sorted(dict(filter(None, found.widest)).items()):
                yield found.whole, record


def outline(dump: Dump, record: Record) -> Outline | None:
    """None where the dump's format does not tell these numbers from others."""
    pattern = dump.statistics
    if pattern is None or record.forward is None:
        return None
    entries = (record.forward,) if record.backward is None else (record.forward, record.backward)
    parts: list[Any] = pattern.split(b"\0".join(map(bytes, entries)))
    step = pattern.groups + 1
    largest, least, address, numbers = (
        parts[pattern.groupindex[name] :: step] for name in ("largest", "least", "address", "number")
    )
    del parts[pattern.groupindex["number"] :: step]
    text = hashlib.blake2b(b"\0".join(filter(None, parts)), digest_size=16).digest()
    addresses = [*compress(numbers, address)]
    # Which of them are equal counts.
    shared = tuple(map(addresses.index, addresses))
    key = (record.namespace, record.api, len(entries), text, shared)
    return Outline(key, _decoded(compress(numbers, largest)), _decoded(compress(numbers, least)))


def _decoded(numbers: Iterable[bytes]) -> list[float]:
    return _NUMBERS.decode(b"[" + b",".join(numbers) + b"]")
