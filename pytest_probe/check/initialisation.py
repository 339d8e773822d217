"""Which calls of a dump build the model, before its first step: 42 % of what a first step records, and never a step's.

Nothing but the dump decides, so that each process and each machine finds the same calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_probe import frameworks
from pytest_probe.frameworks.python.binding import initialises, works_in_place
from pytest_probe.model.dump import Dump, Record, TensorSpec, named_tensors

# What Python calls the function that builds an object: a layer's parameters are made in there.
_BUILDING = "__init__"


def initialisation(dump: Dump) -> frozenset[str]:
    """The names of the records that initialise the model.

    They make or fill tensors, they come before the first call that has a backward, and either they were made while an
    object was built, or they fill a parameter or a tensor that one of them made. So the gradients that a step sets to
    zero, and its data, are none of them; and without stacks few calls are.
    """
    return frozenset(_names(dump))


def _names(dump: Dump) -> Iterator[str]:
    # Without gradients nothing says where the first step begins, and a cache that is built makes tensors as well.
    first = next((place for place, record in enumerate(dump.records) if record.backward is not None), 0)
    signatures = frameworks.signatures(dump.framework)
    made: set[int] = set()
    for record in dump.records[:first]:
        if not initialises(signatures.canonical(record.api)):
            continue
        filled, results = _tensors(dump, record)
        built = any(frame.function == _BUILDING for frame in dump.stack(f"{record.name}.forward"))
        addresses = {spec.address for spec in results if spec.address is not None}
        if built or (filled is not None and (filled.requires_grad or filled.address in made)):
            made |= addresses
            yield record.name
        else:
            # Memory is used again.
            made -= addresses


def _tensors(dump: Dump, record: Record) -> tuple[TensorSpec | None, list[TensorSpec]]:
    """The tensor that a call fills, None for one that makes a tensor; and what it returned."""
    if (call := dump.readable(record)) is None:
        return None, []
    filled = (spec for _, spec in named_tensors(call.args[:1])) if works_in_place(record.api) else iter(())
    return next(filled, None), call.output_specs()
