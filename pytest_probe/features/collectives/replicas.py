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
from pytest_probe.features.collectives.matching import named
from pytest_probe.model.collective import Piece
from pytest_probe.model.dump import Dump, Record, TensorSpec
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records import module_path
from pytest_probe.records.msprobe.entries import as_written
from pytest_probe.records.named_tensors import LEVEL as NAMED

STANDARD = "replicas"
# The kind of a skip.
NO_REPLICAS = "no replicas"
# What is equal for equal tensors.
_Print: TypeAlias = "tuple[object, ...]"
# Gives the values of a tensor of a dump; raises RecordError.
Load: TypeAlias = Callable[[Dump, Piece], AnyArray]


def verdict(steps: Mapping[int, Mapping[int, Dump]], load: Load) -> Verdict:
    """The verdict on the parameters of all ranks, by step and rank."""
    replicas: dict[str, list[frozenset[int]]] = {}
    found: dict[str, OutputVerdict] = {}
    for step, dumps in sorted(steps.items()):
        # What each rank has of each parameter.
        parameters: defaultdict[str, dict[int, _Held]] = defaultdict(dict)
        for rank, dump in dumps.items():
            for name, piece in _parameters(dump):
                own = _print(dump, piece, load)
                if own is not None:
                    parameters[name].setdefault(rank, own)
        for name, held in parameters.items():
            if name not in found:
                difference = _difference(name, held, replicas.get(name), step)
                # The ranks that hold the same.
                groups: defaultdict[_Print, set[int]] = defaultdict(set)
                for rank, each in held.items():
                    if not each.constant:
                        groups[each.print].add(rank)
                replicas.setdefault(name, [*map(frozenset, groups.values())])
                if difference is not None:
                    found[name] = difference
    compared = sum(any(len(group) > 1 for group in groups) for groups in replicas.values())
    if not compared and not found:
        return Verdict("skip", STANDARD, "no parameter has the same values on two ranks", NO_REPLICAS)
    # In the order of steps.
    outputs = tuple(found.values())
    more = f", and {len(found) - 1} further parameters" if len(found) > 1 else ""
    return Verdict(
        "error" if found else "pass",
        STANDARD,
        f"{outputs[0].reason}{more}" if found else "",
        outputs=outputs,
        notes=(f"{compared:,} parameters are held alike by ranks",),
    )


class _Held(Struct, frozen=True):
    """A rank's parameter: print is equal for equal values, constant: it has one value everywhere."""

    spec: TensorSpec
    print: _Print
    constant: bool


def _parameters(dump: Dump) -> Iterator[tuple[str, Piece]]:
    """Those of the modules, as their first call saw them; in a file of named tensors all that it holds."""
    for record in dump.compare_only:
        with suppress(RecordError):
            if dump.level == NAMED:
                yield from _named(dump, record)
            elif record.forward is not None:
                entry = as_written(f"{record.name}.forward")
                for name, spec in dump.decode(record).kwargs.get("parameters", {}).items():
                    if isinstance(spec, TensorSpec):
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


def _difference(
    name: str, held: Mapping[int, _Held], before: Sequence[frozenset[int]] | None, step: int
) -> OutputVerdict | None:
    """The error of ranks that held the same before, or of which most do now, and do not; since a step."""
    together = before if before is not None else [frozenset(held)] if _most(held, held) is not None else []
    for group in together:
        here = [rank for rank in sorted(group) if rank in held]
        prints = {held[rank].print for rank in here}
        if len(prints) > 1:
            most = _most(here, held)
            apart = here if most is None else [rank for rank in here if held[rank].print != most]
            reason = f"replicas differ: {name}, {named(apart)} of {len(held)}, first step {step}"
            spec = held[here[0]].spec
            return OutputVerdict(name, spec.shape, spec.dtype, "error", STANDARD, reason)
    return None


def _most(ranks: Sequence[int] | Mapping[int, _Held], held: Mapping[int, _Held]) -> _Print | None:
    """What more than half of them hold, of three and more."""
    counts = Counter(held[rank].print for rank in ranks)
    if not counts or len(ranks) < 3:
        return None
    found, many = counts.most_common(1)[0]
    constant = any(held[rank].constant for rank in ranks if held[rank].print == found)
    return found if many * 2 > len(ranks) and not constant else None
