"""Which earlier call of a dump made an input, by what the dump tells of both tensors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeAlias

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Dump, Record, TensorSpec, named_tensors

_Told: TypeAlias = tuple[object, ...]


class Producers:
    """The outputs of a dump's records. All records are decoded when it is made."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._places = {record.name: place for place, record in enumerate(dump.records)}
        self._made: dict[_Told, list[int]] = {}
        for place, record in enumerate(dump.records):
            for spec in self._outputs(record):
                self._made.setdefault(_told(spec), []).append(place)

    def of(self, record: Record) -> dict[str, str]:
        """The inputs that are outputs of an earlier call, each with the entry that made it last."""
        return dict(self._of(record))

    def _of(self, record: Record) -> Iterator[tuple[str, str]]:
        call = self._dump.decode(record)
        own = self._places.get(record.name, 0)
        for root, tree in (("input", call.args), ("kwargs", call.kwargs)):
            for name, spec in named_tensors(tree, root):
                places = self._made.get(_told(spec), [])
                before = bisect_left(places, own)
                if before and spec.size > 1 and _told(spec)[2:] != (None,) * 5:
                    yield name, f"{self._dump.records[places[before - 1]].name}.forward"

    def _outputs(self, record: Record) -> list[TensorSpec]:
        try:
            return self._dump.decode(record).output_specs()
        except RecordError:
            return []


def _told(spec: TensorSpec) -> _Told:
    """What equal tensors have in common."""
    numbers = (repr(number) if number is not None else None for number in (spec.max, spec.min, spec.mean, spec.norm))
    return spec.dtype, spec.shape, *numbers, spec.checksum or None
