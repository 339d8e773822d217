"""Both sides of a case that is too large for a reference in full: samples of results, and the reference of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.large.sampler import Sample, Sampler
from pytest_probe.check.reference import other_reading
from pytest_probe.check.structure import Compared, Sides, changed_arguments, nearest_structure
from pytest_probe.errors import NoReference
from pytest_probe.model.dump import Direction
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.user_errors import exception_line


def compared_in_samples(sampler: Sampler, actual: Mapping[str, Any]) -> Compared:
    """A sample of each tensor, and what differs in structure. Raises NoReference where the reference raises."""
    replay, backward = sampler.replay, sampler.direction == "backward"
    structural = tuple(_missing(sampler, actual) if backward else _structural(sampler, actual))
    # Of another shape, it has no rows that could be set side by side.
    wrong = {verdict.name.removeprefix("grad.") for verdict in structural}
    samples = [_sample(sampler, name, array) for name, array in actual.items() if name not in wrong]
    notes = tuple(
        f"sampled: {'grad.' * backward}{sample.name}: {sample.share:.2%} of its elements" for sample in samples
    )
    replay = replace(replay, reference=replace(replay.reference, notes=(*replay.reference.notes, *notes)))
    sides = [nearest_structure(list(_readings(sample, sampler.direction))) for sample in samples]
    return Compared(replay, actual, (Sides(replay, {}, {}, structural), *sides))


def _sample(sampler: Sampler, name: str, array: AnyArray) -> Sample:
    try:
        return sampler.sample(name, array)
    except MemoryError:
        raise
    except Exception as error:
        raise NoReference(f"float64 on the CPU raised {exception_line(error)}") from error


def _readings(sample: Sample, direction: Direction) -> Iterator[Sides]:
    replay = replace(sample.replay, rounded=other_reading(sample.replay.reference))
    for reading in replay.readings():
        if direction == "forward":
            found, name = reading.reference.run.outputs, sample.name
        else:
            found, name = reading.reference.gradients(reading.incoming), f"grad.{sample.name}"
        yield Sides(reading, {name: sample.actual}, {name: found[sample.name]}, (), sample)


def _structural(sampler: Sampler, actual: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    """Outputs of another number or shape than the contraction's, and arguments that were changed."""
    yield from changed_arguments(sampler.replay)
    corner, contraction = sampler.replay.reference.run.outputs, sampler.contraction
    for name in sorted(actual.keys() | corner.keys()):
        shape = np.shape(actual.get(name, ()))
        if name not in actual or name not in corner or not contraction.fits(shape):
            dtype = actual[name].dtype.name if name in actual else corner[name].dtype.name
            wanted = [contraction.extents.get(index or "", "any") for index in contraction.output]
            reason = f"shape {list(shape)}, the reference has {wanted}"
            yield OutputVerdict(name, shape, dtype, "error", "structure", reason)


def _missing(sampler: Sampler, actual: Mapping[str, Any]) -> Iterator[OutputVerdict]:
    reference = sampler.replay.reference
    for name in sorted(frozenset() if reference.wanted is None else reference.wanted.names - actual.keys()):
        array = reference.leaves[name].array
        yield OutputVerdict(
            f"grad.{name}", array.shape, array.dtype.name, "error", "structure", "the device gives no gradient"
        )


def placed(output: OutputVerdict, sample: Sample) -> OutputVerdict:
    """A verdict on a sample as one on the whole tensor."""
    worst = tuple(replace(element, index=sample.index(element.index)) for element in output.worst)
    # Neighbours in a sample are none in the tensor: what was found of places says nothing.
    found = None if output.diagnosis is None else replace(output.diagnosis, where="", cause="", family="")
    metrics = {**output.metrics, "sampled": sample.share}
    return replace(output, shape=sample.shape, worst=worst, metrics=metrics, diagnosis=found)
