"""Both sides of a case that is too large for a reference in full: samples of results, and the reference of those."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_probe.errors import NoReference
from pytest_probe.execution.likeness import first_line
from pytest_probe.execution.replay import Candidate, Replay
from pytest_probe.execution.sampling import Sample, Sampler
from pytest_probe.execution.sides import Looks, Sides, changed_arguments, nearest
from pytest_probe.frameworks.base import Run
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.records.model import Direction
from pytest_probe.standards.verdict import OutputVerdict

Rounding = Callable[[Replay], "tuple[Candidate, Run] | None"]


def sampled_looks(sampler: Sampler, actual: Mapping[str, Any], rounding: Rounding) -> Looks:
    """A sample of each tensor, and what differs in structure. Raises NoReference where the reference raises.

    rounding gives the other reading of a replay (Replayer.rounded).
    """
    replay, backward = sampler.replay, sampler.direction == "backward"
    structural = tuple(_missing(sampler, actual) if backward else _structural(sampler, actual))
    wrong = {verdict.name.removeprefix("grad.") for verdict in structural}
    samples = [_sample(sampler, name, array) for name, array in actual.items() if name not in wrong]
    notes = tuple(
        f"sampled: {'grad.' * backward}{sample.name}: {sample.share:.2%} of its elements" for sample in samples
    )
    replay = replace(replay, notes=(*replay.notes, *notes))
    sides = [nearest(list(_readings(sample, sampler.direction, rounding))) for sample in samples]
    return Looks(replay, actual, (Sides(replay, {}, {}, structural), *sides))


def _sample(sampler: Sampler, name: str, array: AnyArray) -> Sample:
    try:
        return sampler.sample(name, array)
    except Exception as error:
        raise NoReference(f"float64 on the CPU raised {type(error).__name__}: {first_line(error)}") from error


def _readings(sample: Sample, direction: Direction, rounding: Rounding) -> Iterator[Sides]:
    sample.replay.rounded = rounding(sample.replay)
    for reading in sample.replay.readings():
        if direction == "forward":
            found, name = reading.expected.outputs, sample.name
        else:
            found, name = reading.framework.gradients(reading.expected, reading.seeds), f"grad.{sample.name}"
        yield Sides(reading, {name: sample.actual}, {name: found[sample.name]}, (), sample)


def _structural(sampler: Sampler, actual: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    """Outputs of another number or shape than the product's, and arguments that were changed."""
    yield from changed_arguments(sampler.replay)
    corner = sampler.replay.expected.outputs
    for name in sorted(actual.keys() | corner.keys()):
        shape = np.shape(actual.get(name, ()))
        if name not in actual or name not in corner or not sampler.product.fits(shape):
            dtype = actual[name].dtype.name if name in actual else corner[name].dtype.name
            wanted = [sampler.product.extents.get(index or "", "any") for index in sampler.product.output]
            reason = f"shape {list(shape)}, the reference has {wanted}"
            yield OutputVerdict(name, shape, dtype, "error", "structure", reason)


def _missing(sampler: Sampler, actual: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    wanted = sampler.replay.wanted
    for name in sorted(frozenset() if wanted is None else wanted.names - actual.keys()):
        array = sampler.replay.leaves[name].array
        yield OutputVerdict(
            f"grad.{name}", array.shape, array.dtype.name, "error", "structure", "the device gives no gradient"
        )


def placed(output: OutputVerdict, sample: Sample) -> OutputVerdict:
    """A verdict on a sample as one on the whole tensor."""
    worst = tuple(replace(element, index=sample.index(element.index)) for element in output.worst)
    return replace(output, shape=sample.shape, worst=worst, metrics={**output.metrics, "sampled": sample.share})
