"""What blocks of a recorded scaled product hold, and of the values that a quantiser gave: as the dump has it, or from
stored tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import convert
from msgspec.structs import asdict

from pytest_probe import frameworks, inputs
from pytest_probe.errors import ProbeError
from pytest_probe.model.dump import Call, Dump, Record, TensorSpec
from pytest_probe.model.run import BoundCall
from pytest_probe.model.scaled_product import operands
from pytest_probe.numerics.block_statistics import BlockStatistics
from pytest_probe.standards.api_class import classes_of

_OPERANDS = ("input", "mat2")


def of_record(dump: Dump, record: Record, call: Call) -> list[dict[str, Any]]:
    """What the blocks of both operands hold, or of values that a call gave; nothing for any other call, for one whose
    scales are none of its recipe's, which a run says, and where a dump has neither statistics of them nor tensors."""
    signatures, api = frameworks.signatures(dump.framework), f"{record.namespace}.{record.api}"
    found = dict(_recorded(call.returned()))
    if "short_sums" in classes_of(signatures.canonical(api)):
        bound = signatures.bind(api, call.args, call.kwargs)
        found |= dict(_recorded([(name, bound.argument(name)) for name in _OPERANDS]))
        found = found or _stored(dump, record, call, bound)
    return [{"name": name, **asdict(statistics)} for name, statistics in found.items()]


def lines(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What `of_record` gave, for people."""
    for found in blocks:
        yield f"    {found['name']}  {convert({**found}, BlockStatistics).words()}"


def _recorded(values: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, BlockStatistics]]:
    for name, value in values:
        if isinstance(value, TensorSpec) and value.blocks is not None:
            yield name, value.blocks


def _stored(dump: Dump, record: Record, call: Call, bound: BoundCall) -> dict[str, BlockStatistics]:
    """From the tensors of a product of two matrices; nothing where they were not stored."""
    try:
        files = inputs.StoredTensors.of(dump)
        arguments = inputs.build(call, bound=bound, record=record.name, dtype=None, seed=0, kind="stored", files=files)
        both = operands(arguments.bound(bound.api, frameworks.signatures(dump.framework).bind))
    except ProbeError:
        return {}
    return {name: each.blocks() for name, each in zip(_OPERANDS, both, strict=True) if each.matrix.size}
