"""How many values of an argument meet in one element of an output, measured: half of them are exchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pytest_probe.core.arguments import Leaf
from pytest_probe.core.dump import Direction
from pytest_probe.execution.perturbed import results
from pytest_probe.execution.replay import Replay
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, is_floating, widen
from pytest_probe.numerics.noise_ratio import root_mean_square

# What exchanged values are taken by: between equal ones no exchange would show. Towards zero, so that they stay within
# the call's domain where they were.
SHARE = 0.75
# Of an element, and of the output's RMS. What moves it by less adds nothing to its rounding in float32.
NOTHING, NOTHING_OF_ALL = 2.0**-28, 2.0**-40

Found = Mapping[str, AnyArray]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The outputs where chosen indices of one dimension of an argument, counted from its last, are exchanged."""

    argument: str
    dimension: int
    chosen: BoolArray
    found: Found


@dataclass(slots=True)
class Dependence:
    """What the outputs of one case depend on. A run for each dimension of each argument, made once for all outputs."""

    replay: Replay
    direction: Direction
    _runs: list[Exchange] | None = field(default=None)
    _plain: Found = field(default_factory=dict)

    def terms(self, name: str) -> int | None:
        """The most values of one argument, or incoming gradient, that one element of an output depends on; None where
        the reference does not run on exchanged values."""
        if self._runs is None:
            try:
                self._plain, self._runs = self._run({}), list(self._exchanged())
            except MemoryError:
                raise
            except Exception:  # beyond the call's domain: offsets are out of order, a matrix is not definite
                self._plain, self._runs = {}, []
        counts: dict[str, float] = {}
        apart = True
        for run in self._runs:
            if name not in run.found or run.found[name].shape != self._plain[name].shape:
                return None
            moved = _moved(self._plain[name], run.found[name])
            apart &= _within(moved, run)
            counts[run.argument] = counts.get(run.argument, 1.0) * _values(moved, run.chosen)
        if apart and counts:
            return 1
        # Numbers that hang on few of many, as those of a choice do, show one here and many there.
        return max(2, round(max(counts.values()))) if counts else None

    def _exchanged(self) -> Iterator[Exchange]:
        for name, array in self._arrays().items():
            for axis, size in enumerate(array.shape):
                if size > 1:
                    chosen = _half(size)
                    found = self._run({name: exchanged(array, axis, chosen)})
                    yield Exchange(name, array.ndim - axis, chosen, found)

    def _arrays(self) -> dict[str, AnyArray]:
        incoming = self.replay.incoming if self.direction == "backward" else {}
        return {
            **{name: leaf.array for name, leaf in self.replay.reference.leaves.items()},
            **{f"grad.{name}": array for name, array in incoming.items()},
        }

    def _run(self, changed: Mapping[str, AnyArray]) -> Found:
        reference = self.replay.reference
        leaves: dict[str, Leaf] = {
            name: replace(leaf, array=changed.get(name, leaf.array)) for name, leaf in reference.leaves.items()
        }
        if self.direction == "forward":
            return results(reference.again(leaves, reference.way, None), reference.changed)
        incoming = {name: changed.get(f"grad.{name}", array) for name, array in self.replay.incoming.items()}
        return reference.framework.gradients(reference.again(leaves, reference.way, reference.wanted), incoming)


def _half(size: int) -> BoolArray:
    """Which of `size` indices are exchanged: about half, in no order that a tile or a stride has, and never all."""
    order = np.random.Generator(np.random.Philox(key=size)).permutation(size)
    chosen: BoolArray = order < max(1, size // 2)
    return chosen


def exchanged(array: AnyArray, axis: int, chosen: BoolArray) -> AnyArray:
    """The array with those of the next index in place of the chosen ones; floats are made smaller as well."""
    moved = np.array(array)
    places = np.flatnonzero(chosen)
    taken = np.take(array, (places + 1) % len(chosen), axis=axis)
    if is_floating(array.dtype):
        taken = (widen(taken) * SHARE).astype(array.dtype)
    moved[(slice(None),) * axis + (places,)] = taken
    return moved


def _moved(plain: AnyArray, found: AnyArray) -> BoolArray:
    """Which elements of an output are others."""
    first, second = widen(plain), widen(found)
    typical = root_mean_square(np.abs(first[np.isfinite(first)]))
    with np.errstate(invalid="ignore", over="ignore"):
        small = np.maximum(NOTHING * np.abs(first), NOTHING_OF_ALL * typical)
        same = (np.abs(second - first) <= small) | (first == second) | (np.isnan(first) & np.isnan(second))
    return np.asarray(~same)


def _within(moved: BoolArray, run: Exchange) -> bool:
    """Do only those elements move that stand at exchanged indices, as where the call works element by element?"""
    if run.dimension > moved.ndim or moved.shape[-run.dimension] != len(run.chosen):
        return False
    others = np.compress(~run.chosen, moved, axis=moved.ndim - run.dimension)
    return bool(moved.any() and not others.any())


def _values(moved: BoolArray, chosen: BoolArray) -> float:
    """How many of the indices one element depends on: of w that are exchanged with a chance each, none is in
    (1 - share)^w of all elements. All of them, where fewer move than one index alone would have moved."""
    unchanged = 1.0 - float(np.mean(moved)) if moved.size else 1.0
    share = float(chosen.mean())
    if not unchanged or unchanged > 1 - share / 2:
        return float(len(chosen))
    return float(min(len(chosen), max(1, round(math.log(unchanged) / math.log(1 - share)))))
