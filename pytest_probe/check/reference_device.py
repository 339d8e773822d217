"""A reference that runs on another device than the CPU, whose float64 may be wrong.

What is judged by it runs on the CPU as well, once, and so does a part of what is only looked at. Both are float64, so
that they differ by its rounding. Where they differ by more, inputs that move by 2^-40 tell what that is worth: 8,000
roundoffs of float64, and less than a 10,000th of what float32 inside a kernel is off by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, reference_results
from pytest_probe.check.parts import spending
from pytest_probe.check.structure import OutputPairs
from pytest_probe.errors import NoReference, UnsupportedDtype
from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.dump import Direction
from pytest_probe.model.run import Way
from pytest_probe.numerics.arrays import equal_in_float64
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, widen
from pytest_probe.standards.tables import classes_of
from pytest_probe.user_errors import no_reference

# Of the pieces that are only looked at, one in so many runs on the CPU.
CHECKED = 100
# By what an input moves: the share of itself.
MOVED = 2.0**-40
# What has several right values, of which each device may give another: its reference runs on the CPU.
_SEVERAL = frozenset((
    "random", "random_with", "inner_dropout", "uninitialised", "factorisation", "selection", "ties", "own_integers",
))  # fmt: skip
_STREAMS = RandomStreams()
# Changes an input, or an incoming gradient, by its name.
Change: TypeAlias = Callable[[str, AnyArray], AnyArray]


def has_several_results(name: str) -> bool:
    """May another device give other right values for an API of this canonical name?"""
    return not _SEVERAL.isdisjoint(kind.partition("@")[0] for kind in classes_of(name))


def note_of(way: Way) -> str:
    """What a result says of where its reference ran."""
    return f"reference on {way.place}: what is judged, and {1 / CHECKED:.0%} of the rest, ran on the CPU as well"


def check_judged(sides: OutputPairs, direction: Direction) -> None:
    """Raises NoReference where the CPU gives other numbers for what is judged."""
    replay = sides.replay
    # What has several results ran on the CPU. Sums of pieces were compared with the CPU's piece by piece.
    if replay.reference.way.place == "cpu" or replay.reference.is_partial:
        return
    found = {name.removeprefix("grad."): np.asarray(value) for name, value in sides.expected.items()}
    with spending("reference"):
        check(replay.reference.way, found, lambda change: _on_cpu(replay, direction, change))


def _on_cpu(replay: BothSides, direction: Direction, change: Change) -> dict[str, AnyArray]:
    reference = replay.reference
    leaves = {name: replace(leaf, array=change(name, leaf.array)) for name, leaf in reference.leaves.items()}
    incoming = {name: change(name, array) for name, array in replay.incoming.items()}
    own = replace(reference, way=replace(reference.way, place="cpu"), leaves=leaves, cached=None)
    if direction == "forward":
        own = replace(own, run=own.again(leaves, own.way, None))
    return reference_results(replace(replay, reference=own, incoming=incoming), direction)


def check(way: Way, found: Mapping[str, AnyArray], on_cpu: Callable[[Change], Mapping[str, AnyArray]]) -> None:
    """Raises NoReference where numbers that a reference gave elsewhere are not the CPU's. on_cpu gives those, of inputs
    and incoming gradients that are changed by their names."""
    with no_reference("float64 on the CPU", NoReference, UnsupportedDtype):
        wanted = on_cpu(lambda name, array: array)
        wrong = [name for name in found.keys() & wanted.keys() if not _equal(found[name], wanted[name])]
        moved = on_cpu(_moved) if wrong else {}
    wrong = sorted(name for name in wrong if not _within(found[name], wanted[name], moved[name]))
    if wrong:
        raise NoReference(f"float64 on {way.place} gives other numbers than on the CPU: {', '.join(wrong)}")


def _moved(name: str, array: AnyArray) -> AnyArray:
    """Each number a little nearer to zero, or farther from it."""
    if not (is_floating(array.dtype) or is_complex(array.dtype)):
        return array
    wide = widen(array)
    return np.asarray(wide * (1 + MOVED * (2.0 * _STREAMS.at(name).integers(0, 2, wide.shape) - 1)))


def _equal(found: AnyArray, wanted: AnyArray) -> bool:
    if found.shape != wanted.shape or found.dtype.kind in "iub":
        return np.array_equal(found, wanted)
    return equal_in_float64(found, wanted)


def _within(found: AnyArray, wanted: AnyArray, moved: AnyArray) -> bool:
    """Is the CPU no farther off than where its inputs move?"""
    if found.shape != wanted.shape or found.dtype.kind in "iub":
        return False
    finite = np.isfinite(wanted)
    if not (np.array_equal(finite, np.isfinite(found)) and _equal(found[~finite], wanted[~finite])):
        return False
    off, allowed = (np.max(np.abs(each - wanted)[finite], initial=0.0) for each in (found, moved))
    return bool(off <= allowed)
