"""How long a case will take, estimated from the shapes of its tensors: for shards, for the order, for the time left.

Nothing that was measured decides, so every worker and every machine finds the same order and the same shards. Lists of
whole numbers in an entry give its shapes, and records with equal ones are decoded once. And how many cases will be
judged by samples.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pytest_probe import frameworks
from pytest_probe.check.large.contractions import contraction, contraction_kind
from pytest_probe.model.case import Case
from pytest_probe.model.dump import Direction, Dump, Record
from pytest_probe.standards.tables import classes_of

# Milliseconds of one core, of the dumps in tests/data and in cases: what any case takes, each of its tensors, and each
# of their elements, which is made, run on both sides, and measured.
CASE, TENSOR, ELEMENT = 1.0, 0.15, 3e-4
# What sums many terms needs perturbed runs, each of which is another reference.
SUMMED = 3.0
# A multiplication and an addition of the float64 reference and of the device.
FLOP = 2e-7
# A gradient is two products for each one of the forward.
BACKWARD = 2.0
# The lists of whole numbers in an entry, which are its shapes.
_SHAPES = re.compile(rb"\[[\d,\s]*\]")


class Costs:
    """Estimates of one process. They depend on a record's API, shapes and plain arguments alone, so that all machines
    have the same ones. Of cases with equal APIs, dtypes and shapes the first one is decoded."""

    def __init__(self) -> None:
        self._known: dict[object, float] = {}

    def of(self, case: Case) -> float:
        """Milliseconds, roughly."""
        shapes = _shapes(case.record.forward)
        key = case.dump.framework, case.api, case.dtype, shapes
        forward = forward_cost(case) if shapes is None or key not in self._known else self._known[key]
        if shapes is not None:
            self._known[key] = forward
        return forward * BACKWARD if case.direction == "backward" else forward


def forward_cost(case: Case) -> float:
    """Milliseconds of the forward of a record; what cannot be decoded is skipped at once."""
    if case.pair is not None:
        return CASE
    if (call := case.dump.readable(case.record)) is None:
        return CASE
    tensors = [*(spec for _, spec in call.tensors()), *call.output_specs()]
    signatures = frameworks.signatures(case.dump.framework)
    classes = classes_of(signatures.canonical(case.api))
    # Of a product or a convolution, and of the two products of an attention.
    flops = 0.0
    if "attention" in classes and len(tensors) > 1 and tensors[1].shape:
        flops = 4.0 * tensors[0].size * max(tensors[1].shape[1:-1], default=1)
    elif contraction_kind(signatures.canonical(case.api)):
        found = contraction(signatures.bind(case.api, call.args, call.kwargs))
        flops = 0.0 if found is None or not math.isfinite(found.flops) else found.flops
    moved = len(tensors) * TENSOR + sum(spec.size for spec in tensors) * ELEMENT
    return CASE + moved * (SUMMED if flops or case.api.endswith("_norm") else 1.0) + flops * FLOP


def _shapes(entry: Any) -> object:
    """What tells the shapes of an entry that is still JSON; None for any other."""
    try:
        return tuple(_SHAPES.findall(memoryview(entry)))
    except TypeError:
        return None


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
    if (call := dump.readable(record)) is None:
        return False
    found = contraction(signatures.bind(api, call.args, call.kwargs))
    return found is not None and found.flops > budget


def dealt(costs: Sequence[float], parts: int) -> list[int]:
    """Which of so many parts (from 0) each thing goes to, so that parts cost about the same: the costliest that is left
    goes to the cheapest part, and of equal ones the first. This is known as longest processing time first."""
    found = [0] * len(costs)
    heap = [(0.0, part) for part in range(parts)]
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        total, part = heap[0]
        heapq.heapreplace(heap, (total + costs[place], part))
        found[place] = part
    return found
