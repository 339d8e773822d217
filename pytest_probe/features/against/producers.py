"""Which earlier call of a dump made an input, by what the dump tells of both tensors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Dump, Record, TensorSpec, named_tensors

_Key: TypeAlias = "tuple[object, ...] | None"


class Producers:
    """The outputs of a dump's records. All records are decoded when it is made."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._places = {record.name: place for place, record in enumerate(dump.records)}
        self._made: dict[_Key, list[int]] = {}
        for place, record in enumerate(dump.records):
            with suppress(RecordError):
                for spec in dump.decode(record).output_specs():
                    for key in (_told(spec), _memory(spec)):
                        if key is not None:
                            self._made.setdefault(key, []).append(place)

    def of(self, record: Record) -> dict[str, str]:
        """The inputs that hold what an earlier call gave, each with the entry that gave it last."""
        return dict(self._of(record, _told))

    def makers(self, record: Record) -> dict[str, str]:
        """These, and inputs that lie where a result of an earlier call lay: attributes as `.mT` make views."""
        return {**dict(self._of(record, _memory)), **self.of(record)}

    def _of(self, record: Record, key: Callable[[TensorSpec], _Key]) -> Iterator[tuple[str, str]]:
        call = self._dump.decode(record)
        own = self._places.get(record.name, 0)
        for root, tree in (("input", call.args), ("kwargs", call.kwargs)):
            for name, spec in named_tensors(tree, root):
                # Many a number is as another one.
                places = self._made.get(key(spec), []) if spec.size > 1 or key is _memory else []
                before = bisect_left(places, own)
                if before:
                    yield name, f"{self._dump.records[places[before - 1]].name}.forward"


def _told(spec: TensorSpec) -> _Key:
    """What the dump tells of a tensor's values; None where that is nothing."""
    numbers = (repr(number) if number is not None else None for number in (spec.max, spec.min, spec.mean, spec.norm))
    told = (*numbers, spec.checksum or None)
    return None if told == (None,) * 5 else (spec.dtype, spec.shape, *told)


def _memory(spec: TensorSpec) -> _Key:
    """Where it lay; None where the dump does not tell."""
    return None if spec.address is None else (spec.dtype, spec.address)
