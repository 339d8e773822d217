"""Sizes of a failing call made smaller with the numbers that it has: parts of its tensors alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.arguments import Arguments, Leaf, map_tree, mapped
from pytest_probe.model.dump import Call, TensorSpec

# Calls that are made for it at most.
TRIES = 120
# Dimensions of tensors, by name and place.
Places: TypeAlias = "frozenset[tuple[str, int]]"


def cut(call: Call, arguments: Arguments, fails: Callable[[Call, Arguments], bool]) -> tuple[Call, Arguments]:
    """The call with as small sizes as are found in TRIES calls. Sizes that are equal are cut together, since most
    belong together; where they do not, the reference rejects the call, which then does not fail."""
    tries, changed = iter(range(TRIES)), True
    while changed:
        changed, stuck = False, set[int]()
        # What cannot be cut is tried again only when all else is cut.
        while extents := [extent for extent in _extents(arguments) if extent not in stuck]:
            smaller = _smaller(call, arguments, extents[0])
            found = next((tried for tried, _ in zip(smaller, tries, strict=False) if fails(*tried)), None)
            if found is None:
                stuck.add(extents[0])
            else:
                (call, arguments), changed = found, True
    return call, arguments


def _extents(arguments: Arguments) -> list[int]:
    """The different sizes of the tensors, the largest first."""
    found = {extent for leaf in arguments.tensors.values() for extent in leaf.array.shape}
    return sorted((extent for extent in found if extent > 1), reverse=True)


def _parts(extent: int) -> list[slice]:
    """Halves, and all but a quarter or one at either end."""
    half, quarter = extent // 2, max(1, extent // 4)
    parts = [(0, half), (half, extent), (0, extent - quarter), (quarter, extent), (0, extent - 1), (1, extent)]
    return [slice(*part) for part in dict.fromkeys(parts)]


def _smaller(call: Call, arguments: Arguments, extent: int) -> Iterator[tuple[Call, Arguments]]:
    """Calls in which that size is smaller: everywhere, in one place, everywhere but in one."""
    sizes = {name: leaf.array.shape for name, leaf in arguments.tensors.items()}
    places = [(name, dim) for name, shape in sizes.items() for dim, size in enumerate(shape) if size == extent]
    groups = [places, *([place] for place in places), *([each for each in places if each != one] for one in places)]
    for group in dict.fromkeys(frozenset(group) for group in groups if group):
        for part in _parts(extent):
            yield _cut(call, arguments, group, part)


def _cut(call: Call, arguments: Arguments, places: Places, part: slice) -> tuple[Call, Arguments]:
    """These dimensions of these tensors, cut to a part."""

    def leaf(value: Any, name: str) -> Any:
        if not isinstance(value, Leaf):
            return value
        kept = tuple(part if (name, dim) in places else slice(None) for dim in range(value.array.ndim))
        array = np.ascontiguousarray(value.array[kept]).reshape(_shape(value.array.shape, name, places, part))
        return (
            value
            if array.shape == value.array.shape
            else replace(value, array=array, strides=_strides(value, array.shape))
        )

    def spec(value: Any, name: str) -> Any:
        if not isinstance(value, TensorSpec):
            return value
        shape = _shape(value.shape, name, places, part)
        return value if shape == value.shape else replace(value, shape=shape, stride=None)

    args, kwargs = map_tree(call.args, "input", spec), map_tree(dict(call.kwargs), "kwargs", spec)
    return replace(call, args=args, kwargs=kwargs), mapped(arguments, leaf)


def _shape(shape: tuple[int, ...], name: str, places: Places, part: slice) -> tuple[int, ...]:
    return tuple(part.stop - part.start if (name, dim) in places else size for dim, size in enumerate(shape))


def _strides(leaf: Leaf, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Those of the same layout: dimensions in the same order in memory, the innermost as far apart as before."""
    if leaf.strides is None:
        return None
    step = min((stride for stride in leaf.strides if stride), default=1)
    found = [0] * len(shape)
    for dim in sorted(range(len(shape)), key=leaf.strides.__getitem__):
        if leaf.strides[dim]:
            found[dim] = step
            step *= max(shape[dim], 1)
    return tuple(found)
