"""How many cases a run will judge by samples, said before it starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pytest_probe import frameworks
from pytest_probe.check.large.contractions import contraction, contraction_kind
from pytest_probe.errors import RecordError
from pytest_probe.model.dump import Direction, Dump, Record


def sampled_cases(dumps: Iterable[Dump], admits: Callable[[Record, Direction], bool], budget: float) -> int:
    """The cases, in one dtype, of admitted records whose contraction takes more FLOP than the budget."""
    if budget == math.inf:
        return 0
    return sum(
        sum(admits(record, direction) for direction in record.directions)
        for dump in dumps
        for record in dump.records
        if _is_large(dump, record, budget)
    )


def _is_large(dump: Dump, record: Record, budget: float) -> bool:
    signatures, api = frameworks.signatures(dump.framework), f"{record.namespace}.{record.api}"
    if not contraction_kind(signatures.canonical(api)):
        return False
    try:
        call = dump.decode(record)
    except RecordError:
        return False
    found = contraction(signatures.bind(api, call.args, call.kwargs))
    return found is not None and found.flops > budget
