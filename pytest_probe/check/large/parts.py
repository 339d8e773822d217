"""A part of a large case: elements, or rows, whose results hang on the same elements or rows of the arguments alone.

No table says which calls can be cut like that. A part's float64 results are computed from its arguments alone, and are
compared with those of the whole case: another number, or an exception, and the call is not cut.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.replay import Reference, Replay, results
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import Leaf, with_leaves
from pytest_probe.numerics.dtypes import AnyArray, BoolArray
from pytest_probe.numerics.random_streams import RandomStreams
from pytest_probe.user_errors import allowing_refusal

# Elements of an output from which a part is judged first. Below it a case takes a tenth of a second.
LARGE = 2**20
# Elements that are drawn beside those that the cheapest limits leave open: the error of an RMS of so many is 0.2 %, and
# a shift by a hundredth of a scale is five standard errors.
DRAWN = 2**18
# A larger share of the output costs as much as the whole.
MOST = 1 / 4
# Rows: of fewer no share can be drawn.
ROWS = 256
# What another order of the same float64 operations may change, of an element and of the RMS.
SAME = 1e-12
_STREAMS = RandomStreams()


class Cut(Protocol):
    """Which elements of an output, and of each tensor that they hang on."""

    @property
    def share(self) -> float:
        """Of the output's elements."""

    def taken(self, array: AnyArray) -> AnyArray:
        """The part of an argument, an output or an incoming gradient. Raises ValueError where it has none."""


class Elements(Struct, frozen=True):
    """Elements of an output of this shape, by their places in order. Arguments are broadcast to the shape."""

    shape: tuple[int, ...]
    places: AnyArray

    @property
    def share(self) -> float:
        return self.places.size / math.prod(self.shape)

    def taken(self, array: AnyArray) -> AnyArray:
        if array.size == 1:
            return array.reshape(())
        if array.shape == self.shape:
            return array.reshape(-1)[self.places]
        return np.asarray(np.broadcast_to(array, self.shape)[np.unravel_index(self.places, self.shape)])


class Rows(Struct, frozen=True):
    """Rows of an output of this shape, whose leading dimensions are one; tensors with other ones are taken whole."""

    shape: tuple[int, ...]
    leading: int
    places: AnyArray

    @property
    def share(self) -> float:
        return self.places.size / math.prod(self.shape[: self.leading])

    def taken(self, array: AnyArray) -> AnyArray:
        if array.shape[: self.leading] != self.shape[: self.leading]:
            return array
        return array.reshape(-1, *array.shape[self.leading :])[self.places]


class Part(Struct, frozen=True):
    """The replay of a part alone, and which part it is."""

    replay: Replay
    cut: Cut


def part_of(replay: Replay, direction: Direction, name: str, expected: AnyArray, among: BoolArray) -> Part | None:
    """The part of an output with all elements of `among`, and others that are drawn; None for a small output, and where
    there is no such part. expected is the output's reference in full, float64."""
    if expected.size < LARGE or replay.reference.contraction is not None:
        return None
    for cut in _cuts(expected.shape, among, name):
        found = _replay(replay, direction, cut)
        if found is not None and _is_same(found, direction, name, cut.taken(expected)):
            return Part(found, cut)
    return None


def _cuts(shape: tuple[int, ...], among: BoolArray, key: str) -> Iterator[Cut]:
    draw = _STREAMS.at(f"part\0{key}\0{zlib.crc32(repr(shape).encode())}")
    places = _chosen(np.flatnonzero(among), math.prod(shape), DRAWN, draw)
    if places.size <= MOST * math.prod(shape):
        yield Elements(shape, places)
    leading = next((k for k in range(1, len(shape)) if math.prod(shape[:k]) >= ROWS), None)
    if leading is None:
        return
    rows, width = math.prod(shape[:leading]), math.prod(shape[leading:])
    places = _chosen(np.flatnonzero(among.reshape(rows, width).any(axis=1)), rows, -(-DRAWN // width), draw)
    if places.size <= MOST * rows:
        yield Rows(shape, leading, places)


def _chosen(wanted: AnyArray, size: int, count: int, draw: np.random.Generator) -> AnyArray:
    """Those that are wanted, and so many of all, in order."""
    return np.union1d(wanted, draw.integers(size, size=count))


def _replay(replay: Replay, direction: Direction, cut: Cut) -> Replay | None:
    with allowing_refusal():  # the call does not take such arguments
        incoming = {name: cut.taken(array) for name, array in replay.incoming.items()}
        reference = _reference(replay.reference, direction, cut)
        rounded = None if replay.rounded is None else _reference(replay.rounded, direction, cut)
        return replace(replay, reference=reference, rounded=rounded, incoming=incoming)
    return None


def _reference(reference: Reference, direction: Direction, cut: Cut) -> Reference:
    leaves = {name: Leaf(cut.taken(leaf.array), leaf.requires_grad) for name, leaf in reference.leaves.items()}
    arguments = with_leaves(reference.candidate.arguments, leaves)
    found = replace(reference, candidate=replace(reference.candidate, arguments=arguments), leaves=leaves, cached=None)
    return replace(found, run=found.again(leaves, found.way, found.wanted if direction == "backward" else None))


def _is_same(replay: Replay, direction: Direction, name: str, expected: AnyArray) -> bool:
    found = None
    with allowing_refusal():
        found = _outputs(replay, direction).get(name)
    if found is None or found.shape != expected.shape:
        return False
    usual = float(np.sqrt(np.mean(np.square(expected, where=np.isfinite(expected), out=np.zeros_like(expected)))))
    return bool(np.allclose(found, expected, rtol=SAME, atol=SAME * usual, equal_nan=True))


def _outputs(replay: Replay, direction: Direction) -> Mapping[str, AnyArray]:
    reference = replay.reference
    if direction == "forward":
        return results(reference.run, reference.changed)
    run = reference.again(reference.leaves, reference.way, reference.wanted)
    return reference.framework.gradients(run, replay.incoming)
