"""Do ranks that hold a parameter alike still hold it alike? Silent corruption, and a synchronisation that is missing,
look like that.

Ranks are replicas of a parameter where it has the same values on them in the first step that the dump has, and where
most ranks agree in a step. A parameter with one value everywhere tells nothing: parts of a tensor that is spread over
ranks begin like that, too.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.errors import RecordError
from pytest_probe.features.collectives.matching import listed
from pytest_probe.model.collective import Piece
from pytest_probe.model.dump import Dump, Record, TensorSpec
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records import module_path
from pytest_probe.records.msprobe.call_sites import as_written
from pytest_probe.records.named_tensors import LEVEL as NAMED

STANDARD = "replicas"
# The kind of a skip.
NO_REPLICAS = "no replicas"
# What is equal for equal tensors.
_Print: TypeAlias = "tuple[object, ...]"
# Gives the values of a tensor of a dump; raises RecordError.
Load: TypeAlias = Callable[[Dump, Piece], AnyArray]


class Difference(Struct, frozen=True):
    """A parameter that some ranks hold otherwise than the others, since a step."""

    name: str
    ranks: tuple[int, ...]
    count: int
    step: int
    spec: TensorSpec

    @property
    def words(self) -> str:
        those = "rank" if len(self.ranks) == 1 else "ranks"
        return f"{self.name}, {those} {listed(self.ranks)} of {self.count}, first step {self.step}"


def verdict(steps: Mapping[int, Mapping[int, Dump]], load: Load) -> Verdict:
    """The verdict on the parameters of all ranks, by step and rank."""
    replicas: dict[str, list[frozenset[int]]] = {}
    found: dict[str, Difference] = {}
    for step, dumps in sorted(steps.items()):
        for name, held in _held(dumps, load).items():
            if name not in found:
                difference = _difference(name, held, replicas.get(name), step)
                replicas.setdefault(name, _groups(held))
                if difference is not None:
                    found[name] = difference
    compared = sum(any(len(group) > 1 for group in groups) for groups in replicas.values())
    if not compared and not found:
        return Verdict("skip", STANDARD, "no parameter has the same values on two ranks", NO_REPLICAS)
    first = next(iter(sorted(found.values(), key=lambda each: each.step)), None)
    more = f", and {len(found) - 1} further parameters" if len(found) > 1 else ""
    return Verdict(
        "error" if found else "pass",
        STANDARD,
        "" if first is None else f"replicas differ: {first.words}{more}",
        outputs=tuple(_output(each) for each in found.values()),
        notes=(f"{compared:,} parameters are held alike by ranks",),
    )


def _output(found: Difference) -> OutputVerdict:
    reason = f"replicas differ: {found.words}"
    return OutputVerdict(found.name, found.spec.shape, found.spec.dtype, "error", STANDARD, reason)


class _Held(Struct, frozen=True):
    spec: TensorSpec
    print: _Print
    constant: bool


def _held(dumps: Mapping[int, Dump], load: Load) -> dict[str, dict[int, _Held]]:
    """What each rank holds of each parameter."""
    found: defaultdict[str, dict[int, _Held]] = defaultdict(dict)
    for rank, dump in dumps.items():
        for name, piece in _parameters(dump):
            held = _print(dump, piece, load)
            if held is not None:
                found[name].setdefault(rank, held)
    return found


def _parameters(dump: Dump) -> Iterator[tuple[str, Piece]]:
    """Those of the modules, as their first call saw them; in a file of named tensors all that it holds."""
    read = _named if dump.level == NAMED else _of_module
    for record in dump.compare_only:
        with suppress(RecordError):
            yield from read(dump, record)


def _of_module(dump: Dump, record: Record) -> Iterator[tuple[str, Piece]]:
    held = dump.decode(record).kwargs.get("parameters", {}) if record.forward is not None else {}
    for name, spec in held.items():
        if isinstance(spec, TensorSpec):
            entry = as_written(f"{record.name}.forward")
            yield f"{module_path(entry)}.{name}", Piece(entry, f"parameters.{name}", spec)


def _named(dump: Dump, record: Record) -> Iterator[tuple[str, Piece]]:
    for name, spec in dump.decode(record).returned():
        if isinstance(spec, TensorSpec):
            yield record.name, Piece(record.name, name, spec)
    for name, gradient in dump.gradients(record).items():
        if gradient is not None:
            yield f"{record.name}.{name}", Piece(record.name, name, gradient)


def _print(dump: Dump, piece: Piece, load: Load) -> _Held | None:
    """By the values where the dump has them, else by their checksum, else by their statistics."""
    spec, looks = piece.spec, (piece.spec.shape, piece.spec.dtype)
    constant = spec.max == spec.min and spec.max is not None
    if spec.data_name is not None:
        try:
            array = np.ascontiguousarray(load(dump, piece))
        except RecordError:
            return None
        elements = array.reshape(-1).view(np.uint8).reshape(array.size, array.dtype.itemsize)
        constant = bool((elements == elements[:1]).all())
        return _Held(spec, (*looks, hashlib.blake2b(elements.data).digest()), constant)
    if spec.checksum:
        return _Held(spec, (*looks, spec.checksum), constant)
    if spec.max is None:
        return None
    return _Held(spec, (*looks, spec.max, spec.min, spec.mean, spec.norm), constant)


def _groups(held: Mapping[int, _Held]) -> list[frozenset[int]]:
    """The ranks that hold the same."""
    found: defaultdict[_Print, set[int]] = defaultdict(set)
    for rank, each in held.items():
        if not each.constant:
            found[each.print].add(rank)
    return [frozenset(ranks) for ranks in found.values()]


def _difference(
    name: str, held: Mapping[int, _Held], before: Sequence[frozenset[int]] | None, step: int
) -> Difference | None:
    """Ranks that held the same before, or of which most do now, and do not."""
    together = before if before is not None else [frozenset(held)] if _most(held, held) is not None else []
    for group in together:
        here = [rank for rank in sorted(group) if rank in held]
        prints = {held[rank].print for rank in here}
        if len(prints) > 1:
            most = _most(here, held)
            apart = here if most is None else [rank for rank in here if held[rank].print != most]
            return Difference(name, tuple(apart), len(held), step, held[here[0]].spec)
    return None


def _most(ranks: Sequence[int] | Mapping[int, _Held], held: Mapping[int, _Held]) -> _Print | None:
    """What more than half of them hold, of three and more."""
    counts = Counter(held[rank].print for rank in ranks)
    if not counts or len(ranks) < 3:
        return None
    found, many = counts.most_common(1)[0]
    constant = any(held[rank].constant for rank in ranks if held[rank].print == found)
    return found if many * 2 > len(ranks) and not constant else None
