"""Cases too large for a reference in full: some rows and columns are judged, random ones, and others that checksums
point at.

A checksum is the sum of a block of elements with random signs. Its reference costs as much less as blocks are large,
since the reference's own call takes arguments folded alike. It says where to look and judges nothing: what lies there
is judged as any output is. In the end both sides have samples of results, and the reference of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.large.contractions import Contraction, IndexValues, Indices, cut, free_indices
from pytest_probe.check.perturbed import Perturbation, PerturbedRuns
from pytest_probe.check.reference import other_reading
from pytest_probe.check.structure import (
    OutputPairs,
    PairedOutputs,
    changed_arguments,
    nearest_structure,
    structure_error,
)
from pytest_probe.inputs.draws import RecordStreams
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import Run, Wanted
from pytest_probe.model.verdict import OutputVerdict
from pytest_probe.numerics.allowed_scale import root_mean_square
from pytest_probe.numerics.dtypes import AnyArray, float_format, is_complex, widen
from pytest_probe.user_errors import no_reference

# Elements: 32 MiB of float64, where a wide copy of the whole would be gigabytes.
CHUNK = 1 << 22


class Checksums(Struct, frozen=True):
    """Blocks of `size` places, the last one perhaps shorter, and a sign for each place.

    Random signs keep what all elements share (a kernel that cuts instead of rounding) from adding up.
    """

    signs: AnyArray
    size: int

    @classmethod
    def of(cls, extent: int, size: int, random: np.random.Generator) -> Checksums:
        """Of so many places, with random signs."""
        return cls(random.integers(0, 2, extent) * 2.0 - 1.0, min(extent, size))

    def signed(self, array: AnyArray, axis: int) -> AnyArray:
        """The sums of blocks, in float64, one in the place of each block."""
        signs = self.signs.reshape([-1 if dim == axis else 1 for dim in range(array.ndim)])
        return self._summed(array, axis, lambda part: part * signs)

    def rounding(self, array: AnyArray, axis: int) -> AnyArray:
        """The standard deviation of such sums where each element was rounded to the array's dtype: u |x| / sqrt(3) an
        element, which is ulp / sqrt(12) at powers of two and less elsewhere."""
        roundoff = float_format(array.dtype).roundoff
        return np.asarray(np.sqrt(self._summed(array, axis, np.square) / 3) * roundoff)

    def places(self, blocks: AnyArray, size: int) -> AnyArray:
        """The places of the first blocks that have about so many between them, of one at least."""
        extent = len(self.signs)
        taken = blocks[: max(1, size // self.size)]
        return np.concatenate([np.arange(block * self.size, min((block + 1) * self.size, extent)) for block in taken])

    def _summed(self, array: AnyArray, axis: int, change: Callable[[AnyArray], AnyArray]) -> AnyArray:
        """Chunk by chunk along another dimension, lest a wide copy of the whole be held."""
        starts = np.arange(0, array.shape[axis], self.size)
        if array.ndim == 1 or array.size <= CHUNK:
            return np.add.reduceat(change(widen(array)), starts, axis=axis)
        # The longest one: a batch of one has no parts.
        other = max((dim for dim in range(array.ndim) if dim != axis), key=lambda dim: array.shape[dim])
        step = max(1, CHUNK * array.shape[other] // array.size)
        chunks = (
            array[(slice(None),) * other + (slice(first, first + step),)]
            for first in range(0, array.shape[other], step)
        )
        return np.concatenate(
            [np.add.reduceat(change(widen(chunk)), starts, axis=axis) for chunk in chunks], axis=other
        )


# u_c of float32 and narrower: a checksum says where to look, so that one roundoff does for all dtypes.
ROUNDOFF = 2.0**-24
# Elements of an incoming gradient that are summed for samples of what is added to a product (a bias).
SUMMED = 1 << 22
# Places of an index that are taken at least, however small the budget: one alone would see no neighbour.
LEAST = 4

Change = Callable[[AnyArray, Indices], AnyArray]


class Sample(Struct, frozen=True):
    """Part of one tensor, an output or an argument's gradient: the replay of what that part follows from, the device's
    numbers, and the places that were taken along each of the tensor's dimensions (None: all)."""

    name: str
    replay: BothSides
    actual: AnyArray
    places: tuple[AnyArray | None, ...]
    shape: tuple[int, ...]

    @property
    def share(self) -> float:
        """How much of the tensor it is."""
        return self.actual.size / math.prod(self.shape)

    def placed(self, output: OutputVerdict) -> OutputVerdict:
        """A verdict on the sample as one on the whole tensor."""
        worst = tuple(replace(element, index=self.index(element.index)) for element in output.worst)
        # Neighbours in a sample are not neighbours in the tensor: what was found of places says nothing.
        found = None if output.diagnosis is None else replace(output.diagnosis, where="", cause="", family="")
        metrics = {**output.metrics, "sampled": self.share}
        return replace(output, shape=self.shape, worst=worst, metrics=metrics, diagnosis=found, basis=None)

    def index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Where an element of the sample is in the whole tensor."""
        return tuple(
            place if taken is None else int(taken[place]) for place, taken in zip(index, self.places, strict=True)
        )


class Sampler(Struct, frozen=True):
    """Samples of a replay whose contraction costs more than `budget` FLOP; key and seed draw them."""

    replay: BothSides
    contraction: Contraction
    budget: float
    direction: Direction
    key: str
    seed: int

    def sample(self, name: str, actual: AnyArray) -> Sample:
        """Of an output, or of the gradient of an argument."""
        indices = self.contraction.indices(name)
        places = self._added_places(name) if name in self.contraction.addends else self._places(name, actual)
        taken = tuple(None if index is None else places.get(index) for index in indices)
        # The reference's own call on parts of its arguments gives the same part of the result.
        replay = self._changed(lambda array, of: cut(array, of, places), name)
        return Sample(name, replay, cut(actual, indices, places), taken, actual.shape)

    def _added_places(self, name: str) -> IndexValues:
        """Of something that is added to the product. What only the factors have does not matter to its gradient."""
        own = {index for index in self.contraction.indices(name) if index}
        summed = {index for index in self.contraction.output if index and index not in own}
        terms = math.prod(self.contraction.extents[index] for index in summed)
        inner = {index: 1 for index in self.contraction.extents if index not in own | summed}
        largest = max(own, key=lambda index: self.contraction.extents[index], default=None)
        sizes = inner if largest is None else {**inner, largest: max(LEAST, SUMMED // max(terms, 1))}
        return {index: self._random(name, index)[:size] for index, size in sizes.items()}

    def _places(self, name: str, actual: AnyArray) -> IndexValues:
        along = self._along(name)
        indices = sorted(
            {index for index in self.contraction.indices(name) if index},
            key=lambda index: (index == along, self.contraction.extents[index]),
        )
        sizes = self._sizes(indices[-2:], along)
        pointed = {} if along is None or is_complex(actual.dtype) else self._pointed(name, along, sizes, actual)
        return {
            index: np.sort(_first(pointed.get(index, ()), self._random(name, index), size))
            for index, size in sizes.items()
        }

    def _sizes(self, indices: list[str], along: str | None) -> dict[str, int]:
        """How many places of each index half the budget is enough for: as many of one as of the other, but two blocks
        of the folded one at least."""
        extents = self.contraction.extents
        # The other half goes to checksums.
        left = self.budget / 2 / self.contraction.flops * math.prod(extents[index] for index in indices)
        least = {index: min(extents[index], 2 * self._block if index == along else LEAST) for index in indices}
        sizes: dict[str, int] = {}
        for number, index in enumerate(sorted(indices, key=lambda item: extents[item])):
            others = [least[other] for other in indices if other != index and other not in sizes]
            wanted = min(left ** (1 / (len(indices) - number)), left / math.prod(others))
            sizes[index] = min(extents[index], max(least[index], round(wanted)))
            left /= sizes[index]
        return sizes

    @property
    def _block(self) -> int:
        """Elements of a checksum: as many as leave half the budget to what is summed."""
        return math.ceil(2 * self.contraction.flops / self.budget)

    def _along(self, name: str) -> str | None:
        """The index to fold: the one that leaves least to compute with."""
        contraction = self.contraction
        tensors = [*contraction.factors.values(), *contraction.addends.values(), contraction.output]

        def left(folded: str) -> int:
            return sum(
                math.prod(contraction.extents[index] for index in indices if index and index != folded)
                for indices in tensors
            )

        return min(free_indices(contraction, name), key=left, default=None)

    def _random(self, name: str, index: str) -> AnyArray:
        return RecordStreams(f"{self.key}\0{name}", self.seed).at(index).permutation(self.contraction.extents[index])

    def _pointed(self, name: str, along: str, sizes: Mapping[str, int], actual: AnyArray) -> IndexValues:
        """The rows and columns whose checksums are off by most, at most half of what is taken."""
        # By the case's key and the seed, so that another run looks at the same places.
        signs = RecordStreams(f"{self.key}\0{name}", self.seed).at("signs")
        checksums = Checksums.of(self.contraction.extents[along], self._block, signs)
        indices = self.contraction.indices(name)
        scores = self._scores(name, along, checksums, actual)
        kept = [dim for dim, index in enumerate(indices) if index in sizes]
        scores = scores.max(axis=tuple(dim for dim in range(scores.ndim) if dim not in kept))
        order = np.unravel_index(np.argsort(scores, axis=None)[::-1][: max(sizes.values())], scores.shape)
        found: dict[str, AnyArray] = {}
        for dim, places in zip(kept, order, strict=True):
            index = str(indices[dim])
            distinct = np.fromiter(dict.fromkeys(places.tolist()), np.int64)
            # Half by checksums and half at random: what all elements share no checksum shows.
            half = (sizes[index] + 1) // 2
            found[index] = checksums.places(distinct, half) if index == along else distinct[:half]
        return found

    def _scores(self, name: str, along: str, checksums: Checksums, actual: AnyArray) -> AnyArray:
        """How far each checksum is off, in units of what rounding explains."""
        indices = self.contraction.indices(name)
        axis = indices.index(along)

        def folded_along(array: AnyArray, of: Indices) -> AnyArray:
            return checksums.signed(array, of.index(along)) if along in of else array

        folded = self._changed(folded_along, name)
        expected = self._result(folded, name)
        moved = PerturbedRuns(folded, Perturbation(self.key, self.direction, ROUNDOFF))
        runs = moved.output(name, "perturbed", 1)
        spread = np.abs(runs[0] - expected) if runs else np.zeros_like(expected)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            # Independent errors add up by their squares: the output's own rounding, and half the noise that the rule
            # grants all.
            allowed = np.sqrt(checksums.rounding(actual, axis) ** 2 + spread**2 + root_mean_square(spread) ** 2 / 4)
            off = np.abs(checksums.signed(actual, axis) - expected)
            scores = off / np.maximum(allowed, float_format(actual.dtype).smallest)
        return np.where(np.isfinite(scores), scores, np.inf)

    def _result(self, replay: BothSides, name: str) -> AnyArray:
        if self.direction == "forward":
            return widen(replay.reference.run.outputs[name])
        return widen(replay.reference.gradients(replay.incoming)[name])

    def _changed(self, change: Change, name: str) -> BothSides:
        """The replay with all its tensors changed alike, for one of its results, and the reference's run on those."""
        contraction, whole = self.contraction, self.replay.reference
        leaves = {
            leaf_name: replace(leaf, array=change(leaf.array, contraction.indices(leaf_name)), strides=None, offset=0)
            for leaf_name, leaf in whole.leaves.items()
        }
        wanted = None if whole.wanted is None or self.direction == "forward" else Wanted(frozenset({name}))
        reference = whole.with_leaves(leaves, wanted=wanted, contraction=None).ran()
        outputs = {key: change(value, contraction.output) for key, value in self.replay.actual.outputs.items()}
        actual = Run(outputs, frozenset(), lambda leaf_name: leaves[leaf_name].array)
        incoming = {key: change(array, contraction.output) for key, array in self.replay.incoming.items()}
        return replace(self.replay, reference=reference, actual=actual, incoming=incoming)


def _first(pointed: Any, random: AnyArray, size: int) -> AnyArray:
    """So many places: those pointed at, then random ones."""
    return np.fromiter(dict.fromkeys([*pointed, *random.tolist()]), np.int64)[: max(size, len(pointed))]


def compared_in_samples(sampler: Sampler, actual: Mapping[str, Any]) -> PairedOutputs:
    """A sample of each tensor, and what differs in structure. Raises NoReference where the reference raises."""
    replay, backward = sampler.replay, sampler.direction == "backward"
    if backward:
        wanted, leaves = replay.reference.wanted, replay.reference.leaves
        missing = sorted(frozenset() if wanted is None else wanted.names - actual.keys())
        words = "the device gives no gradient"
        structural = tuple(structure_error(f"grad.{name}", leaves[name].array, words) for name in missing)
    else:
        structural = tuple(_structural(sampler, actual))
    # Of another shape, it has no rows that could be set side by side.
    wrong = {verdict.name.removeprefix("grad.") for verdict in structural}
    with no_reference("float64 on the CPU"):
        samples = [sampler.sample(name, array) for name, array in actual.items() if name not in wrong]
    notes = tuple(
        f"sampled: {'grad.' * backward}{sample.name}: {sample.share:.2%} of its elements" for sample in samples
    )
    replay = replace(replay, reference=replace(replay.reference, notes=(*replay.reference.notes, *notes)))
    sides = [nearest_structure(list(_readings(sample, sampler.direction))) for sample in samples]
    return PairedOutputs(replay, actual, (OutputPairs(replay, {}, {}, structural), *sides))


def _readings(sample: Sample, direction: Direction) -> Iterator[OutputPairs]:
    replay = replace(sample.replay, rounded=other_reading(sample.replay.reference))
    for reading in replay.readings():
        if direction == "forward":
            found, name = reading.reference.run.outputs, sample.name
        else:
            found, name = reading.reference.gradients(reading.incoming), f"grad.{sample.name}"
        yield OutputPairs(reading, {name: sample.actual}, {name: found[sample.name]}, (), sample)


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
