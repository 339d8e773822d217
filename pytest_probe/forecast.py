"""What a run will sample, and for how long, said before it starts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pytest_probe.errors import RecordError
from pytest_probe.execution.products import Product, may_be_product, product
from pytest_probe.records.model import Direction, Dump
from pytest_probe.selection import Selection

# Reference runs of a forward (its own, two perturbed ones, two of checksums), and tensors that a backward has of it.
RUNS = 5
TENSORS: dict[Direction, int] = {"forward": 1, "backward": 3}
# Making, moving, rounding and summing an element of an argument, a result or a gradient: benchmarks/large_tensors.py.
SECONDS_AN_ELEMENT = 8e-8


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many cases are sampled, and about how many seconds of this machine they take."""

    cases: int
    seconds: float


def forecast(dumps: Iterable[Dump], selection: Selection, budget: float) -> Forecast:
    """For the selected cases of products that cost more FLOP than the budget."""
    if budget == math.inf:
        return Forecast(0, 0.0)
    large = [found for dump in dumps for found in _large(dump, selection, budget)]
    if not large:
        return Forecast(0, 0.0)
    runs = sum(RUNS * TENSORS[direction] for direction, _ in large)
    elements = sum(_elements(found) for _, found in large)
    seconds = runs * budget / _rate() + elements * SECONDS_AN_ELEMENT
    count = len(selection.dtypes)
    return Forecast(len(large) * count, seconds * count)


def _large(dump: Dump, selection: Selection, budget: float) -> Iterator[tuple[Direction, Product]]:
    for record in dump.records:
        api = f"{record.namespace}.{record.api}"
        if not may_be_product(api):
            continue
        directions = [direction for direction in record.directions if selection.admits(record, direction)]
        try:
            call = dump.decode(record)
        except RecordError:
            continue
        found = product(api, call.args, call.kwargs)
        if found is not None and found.flops > budget:
            yield from ((direction, found) for direction in directions)


def _elements(found: Product) -> float:
    tensors = (*found.factors.values(), *found.addends.values(), found.output)
    return sum(math.prod(found.extents[index] for index in indices if index) for indices in tensors)


def _rate(extent: int = 512) -> float:
    """FLOP a second of a float64 product on this machine."""
    matrix = np.ones((extent, extent))
    matrix @ matrix
    start = time.perf_counter()
    matrix @ matrix
    return 2.0 * extent**3 / (time.perf_counter() - start)
