"""The blocks of a recorded scaled product, from its stored tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from pytest_probe import frameworks, inputs
from pytest_probe.check import Checker, Conditions
from pytest_probe.errors import ProbeError
from pytest_probe.model.block_statistics import block_statistics
from pytest_probe.model.dump import Call, Dump, Record
from pytest_probe.model.scaled_product import operands
from pytest_probe.registry import Registry
from pytest_probe.standards.api_class import classes_of


def of_record(dump: Dump, record: Record, call: Call, registry: Registry) -> list[dict[str, Any]]:
    """What the blocks of both operands hold; nothing for any other call, for one of groups, one whose tensors were not
    stored, or one whose scales are none of its recipe's, which a run says."""
    signatures, api = frameworks.signatures(dump.framework), f"{record.namespace}.{record.api}"
    if "short_sums" not in classes_of(signatures.canonical(api)):
        return []
    bound = signatures.bind(api, call.args, call.kwargs)
    try:
        files = Checker(Conditions(device="cpu"), registry).files(dump)
        arguments = inputs.build(call, bound=bound, record=record.name, dtype=None, seed=0, kind="stored", files=files)
        both = operands(arguments.bound(api, signatures.bind))
    except ProbeError:
        return []
    named = zip(("input", "mat2"), both, strict=True)
    return [{"name": name, **asdict(block_statistics(each))} for name, each in named if each.matrix.size]


def lines(blocks: list[Mapping[str, Any]]) -> Iterator[str]:
    for each in blocks:
        lost = f", {each['not_finite']:,} of them NaN" if each["not_finite"] else ""
        yield (
            f"    {each['name']}  {each['blocks']:,} scales over {each['binades']:.3g} binades{lost}; "
            f"{each['clipped']:.2%} of the numbers are the largest, {each['clipped_in_a_block']:.2%} in one block; "
            f"{each['flushed']:.2%} are zero, {each['flushed_in_a_block']:.2%} in one block"
        )
