"""A reference that runs on another device than the CPU, whose float64 may be wrong.

What is judged by it runs on the CPU as well, once, and so does a part of what is only looked at. Both are float64, so
that they differ by its rounding: by 2^-46 of an element at most, or by less than where the CPU's inputs move by 2^-40.
That is 8,000 roundoffs of float64, and less than a 10,000th of what float32 inside a kernel is off by. Only elements of
sums, and what integers give, which do not move, are granted a share of the others' size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, reference_results
from pytest_probe.check.structure import OutputPairs
from pytest_probe.errors import NoReference, UnsupportedDtype
from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.device_arrays import DeviceArray
from pytest_probe.model.dump import Direction
from pytest_probe.model.measurement import spending
from pytest_probe.model.run import Way
from pytest_probe.numerics.allowed_scale import RMS_SHARE, TINY, root_mean_square
from pytest_probe.numerics.dtypes import AnyArray, is_complex, is_floating, widen
from pytest_probe.standards.tables import classes_of
from pytest_probe.user_errors import no_reference

# Of the pieces that are only looked at, one in so many runs on the CPU.
CHECKED = 100
# By what an input moves: the share of itself; how many times the distance that an element then moves it may be off,
# which may be small by chance; and the share of an element, 64 roundoffs, that library functions may be off by.
MOVED, TIMES, ROUNDED = 2.0**-40, 8.0, 2.0**-46
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
        check(
            replay.reference.way,
            replay.reference.candidate.name,
            found,
            lambda change: _on_cpu(replay, direction, change),
        )


def _on_cpu(replay: BothSides, direction: Direction, change: Change) -> Mapping[str, AnyArray]:
    reference = replay.reference
    leaves = {name: replace(leaf, array=change(name, leaf.array)) for name, leaf in reference.leaves.items()}
    incoming = {name: change(name, array) for name, array in replay.incoming.items()}
    own = replace(reference, way=replace(reference.way, place="cpu"), leaves=leaves, cached=None)
    if direction == "forward":
        own = replace(own, run=own.again(leaves, own.way, None))
    return reference_results(replace(replay, reference=own, incoming=incoming), direction)


def check(
    way: Way, api: str, found: Mapping[str, AnyArray | DeviceArray], on_cpu: Callable[[Change], Mapping[str, AnyArray]]
) -> None:
    """Raises NoReference where numbers that a reference of an API gave elsewhere are not the CPU's. on_cpu gives those,
    of inputs and incoming gradients that are changed by their names."""
    sums = "elementwise" not in classes_of(api)
    with no_reference("float64 on the CPU", NoReference, UnsupportedDtype):
        wanted = on_cpu(lambda name, array: array)
        # What the CPU does not give is nothing to believe.
        unlike = found.keys() - wanted.keys()
        in_doubt = [name for name in found.keys() & wanted.keys() if not _within(found[name], wanted[name], sums=sums)]
        moved = on_cpu(_moved) if in_doubt else {}
        for name in in_doubt:
            if name not in moved or not _within(found[name], wanted[name], moved[name], sums=sums):
                unlike.add(name)
    if unlike:
        raise NoReference(f"float64 on {way.place} gives other numbers than on the CPU: {', '.join(sorted(unlike))}")


def _moved(name: str, array: AnyArray) -> AnyArray:
    """Each number a little nearer to zero, or farther from it, by no common amount, lest terms cancel again."""
    if not (is_floating(array.dtype) or is_complex(array.dtype)):
        return array
    wide = widen(array)
    by = _STREAMS.at(name).uniform(0.5, 1.0, wide.shape)
    return np.asarray(wide * (1 + MOVED * np.where(by < 0.75, by + 0.25, -by)))


def _within(found: AnyArray | DeviceArray, wanted: AnyArray, moved: AnyArray | None = None, *, sums: bool) -> bool:
    """Is each element no farther off than float64's rounding takes it? moved: what the CPU gives of moved inputs, None
    before that is known. sums: elements are sums, in which terms may cancel. They, and what does not move, are granted
    a part of the others' distances and sizes."""
    if isinstance(found, DeviceArray):
        least = TINY + (ROUNDED * root_mean_square(np.abs(wanted[np.isfinite(wanted)])) if sums else 0.0)
        if found.shape == wanted.shape and found.dtype == wanted.dtype and found.is_near(wanted, ROUNDED, least):
            return True
        found = np.asarray(found)
    if found.shape != wanted.shape or found.dtype.kind in "iub":
        return np.array_equal(found, wanted)
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return False
    if moved is not None and moved.shape != wanted.shape:
        return False
    found, wanted = found[finite], wanted[finite]
    size = np.abs(wanted)
    reach = np.zeros_like(size) if moved is None else np.abs(moved[finite] - wanted)
    allowed = TIMES * reach + ROUNDED * size + TINY
    if sums or (moved is not None and not reach.any()):
        allowed += RMS_SHARE * root_mean_square(reach[np.isfinite(reach)]) + ROUNDED * root_mean_square(size)
    return bool((np.abs(found - wanted) <= allowed).all())
