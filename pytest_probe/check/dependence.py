"""How many values of an argument meet in one element of an output, measured: half of them are exchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, results
from pytest_probe.check.reference_cache import CachedResult
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import Leaf
from pytest_probe.numerics.allowed_scale import root_mean_square
from pytest_probe.numerics.arrays import blocks
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, alike, is_floating, widen
from pytest_probe.user_errors import allowing_refusal

# What exchanged values are taken by: between equal ones no exchange would show. Towards zero, so that they stay within
# the call's domain where they were.
SHARE = 0.75
# Of an element, and of the output's RMS. What moves it by less adds nothing to its rounding in float32.
NOTHING, NOTHING_OF_ALL = 2.0**-28, 2.0**-40

Found = Mapping[str, AnyArray]


class Counts(Struct):
    """What all exchanges tell of one output: do only elements at exchanged indices move, and how many values of each
    argument meet in one element?"""

    apart: bool = True
    values: dict[str, float] = field(default_factory=dict)

    def add(self, argument: str, dimension: int, chosen: BoolArray, moved: BoolArray) -> None:
        """Chosen indices of one dimension of an argument, counted from its last, were exchanged: what moved then."""
        # Do only those elements move that stand at exchanged indices, as where the call works element by element?
        axis = moved.ndim - dimension
        if axis < 0 or moved.shape[axis] != len(chosen):
            self.apart = False
        else:
            touched = np.asarray(moved.any(axis=tuple(other for other in range(moved.ndim) if other != axis)))
            self.apart &= bool(touched.any() and not touched[~chosen].any())
        self.values[argument] = self.values.get(argument, 1.0) * _values(moved, chosen)

    def terms(self) -> int | None:
        if self.apart and self.values:
            return 1
        # Numbers that depend on few of many, as those of a choice do, show one here and many there.
        return max(2, round(max(self.values.values()))) if self.values else None


class Dependence(Struct):
    """What the outputs of one case depend on. A run for each dimension of each argument, made once for all outputs."""

    replay: BothSides
    direction: Direction
    _counts: dict[str, Counts] | None = field(default=None)

    def terms(self, name: str) -> int | None:
        """The most values of one argument, or incoming gradient, that one element of an output depends on; None where
        the reference does not run on exchanged values."""
        if self._counts is None:
            reference, incoming = self.replay.reference, self.replay.incoming
            self._counts = {}
            with allowing_refusal():  # beyond the call's domain: offsets are out of order, a matrix is not definite
                self._counts = reference.kept(
                    lambda: ("dependence", self.direction, incoming, reference.wanted, reference.changed),
                    self._measured,
                    lambda counts: CachedResult({}, {name: [one.apart, one.values] for name, one in counts.items()}),
                    lambda kept: {name: Counts(apart, values) for name, (apart, values) in kept.other.items()},
                )
        return self._counts[name].terms() if name in self._counts else None

    def _measured(self) -> dict[str, Counts]:
        """By output, but for outputs that an exchange makes vanish or change their shape. One run is held at a time.

        Integers come first: the call may refuse others. Then the largest arguments: where an element depends on all
        values of one, as far as an exchange tells, smaller ones change nothing any more.
        """
        plain = {name: _Plain.of(array) for name, array in self._run({}, None).items()}
        counts = {name: Counts() for name in plain}
        arrays = {name: leaf.array for name, leaf in self.replay.reference.leaves.items()}
        incoming = self.replay.incoming if self.direction == "backward" else {}
        arrays |= {f"grad.{name}": array for name, array in incoming.items()}
        for argument, array in sorted(arrays.items(), key=lambda item: (is_floating(item[1].dtype), -item[1].size)):
            least = array.size if is_floating(array.dtype) else math.inf
            # No exchange of an argument with at least so many values changes the count of any other output.
            asked = [name for name, one in counts.items() if one.apart or max(one.values.values()) < least]
            for axis, size in enumerate(array.shape):
                if size > 1 and asked:
                    # About half of the indices, in no order that a tile or a stride has, and never all.
                    order = np.random.Generator(np.random.Philox(key=size)).permutation(size)
                    chosen: BoolArray = order < max(1, size // 2)
                    found = self._run({argument: exchanged(array, axis, chosen)}, asked)
                    for name in asked:
                        if name in found and found[name].shape == plain[name].array.shape:
                            counts[name].add(argument, array.ndim - axis, chosen, plain[name].moved(found[name]))
                        else:
                            counts.pop(name)
                    asked = [name for name in asked if name in counts]
        return counts

    def _run(self, changed: Mapping[str, AnyArray], asked: Sequence[str] | None) -> Found:
        """The results of a run on changed arguments; of the arguments that the call writes to only the asked ones, if
        any are named."""
        reference = self.replay.reference
        leaves: dict[str, Leaf] = {
            name: replace(leaf, array=changed.get(name, leaf.array)) for name, leaf in reference.leaves.items()
        }
        # The record's own arguments were checked before they ran; numbers of boxes that are exchanged add up to others.
        reference.framework.check_arguments(reference.with_leaves(leaves).bound)
        if self.direction == "forward":
            written = reference.changed if asked is None else reference.changed.intersection(asked)
            return results(reference.again(leaves, reference.way, None), written)
        incoming = {name: changed.get(f"grad.{name}", array) for name, array in self.replay.incoming.items()}
        return reference.gradients_of(leaves, reference.way, incoming)


def exchanged(array: AnyArray, axis: int, chosen: BoolArray) -> AnyArray:
    """The array with those of the next index in place of the chosen ones; floats are made smaller as well."""
    moved = np.array(array)
    places = np.flatnonzero(chosen)
    taken = np.take(array, (places + 1) % len(chosen), axis=axis)
    if is_floating(array.dtype):
        taken = (widen(taken) * SHARE).astype(array.dtype)
    moved[(slice(None),) * axis + (places,)] = taken
    return moved


class _Plain(Struct, frozen=True):
    """An output as it is without any exchange. nothing: what moves an element by less, of any size, adds nothing."""

    array: AnyArray
    nothing: float

    @classmethod
    def of(cls, array: AnyArray) -> _Plain:
        values = widen(array)
        return cls(array, NOTHING_OF_ALL * root_mean_square(np.abs(values[np.isfinite(values)])))

    def moved(self, found: AnyArray) -> BoolArray:
        """Which elements are others."""
        moved = np.empty(self.array.shape, bool)
        flat, start = moved.reshape(-1), 0
        with np.errstate(invalid="ignore", over="ignore"):
            for first, second in blocks(np.ascontiguousarray(self.array), np.ascontiguousarray(found)):
                flat[start : start + first.size] = self._moved(widen(first), widen(second))
                start += first.size
        return moved

    def _moved(self, first: AnyArray, second: AnyArray) -> BoolArray:
        small = np.maximum(NOTHING * np.abs(first), self.nothing)
        moved: BoolArray = ~(np.abs(second - first) <= small)
        if moved.any() and not np.isfinite(first).all():
            moved &= ~alike(first, second)
        return moved


def _values(moved: BoolArray, chosen: BoolArray) -> float:
    """How many of the indices one element depends on: of w that are exchanged with a chance each, none is in
    (1 - share)^w of all elements. All of them, where fewer move than one index alone would have moved."""
    unchanged = 1.0 - np.count_nonzero(moved) / moved.size if moved.size else 1.0
    share = float(chosen.mean())
    if not unchanged or unchanged > 1 - share / 2:
        return float(len(chosen))
    return float(min(len(chosen), max(1, round(math.log(unchanged) / math.log(1 - share)))))
