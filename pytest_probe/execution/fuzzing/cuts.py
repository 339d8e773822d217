"""Sizes of a failing call made smaller with the numbers that it has: parts of its tensors alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_probe.core.arguments import Arguments, Leaf, map_tree, mapped, named_leaves
from pytest_probe.core.dump import Call, TensorSpec
from pytest_probe.numerics.dtypes import AnyArray

# Calls that are made for it at most.
TRIES = 80


def cut(call: Call, arguments: Arguments, fails: Callable[[Call, Arguments], bool]) -> tuple[Call, Arguments]:
    """The call with as small sizes as are found in TRIES calls. Sizes that are equal are cut together, since most
    belong together; where they do not, the reference rejects the call, which then does not fail."""
    left, changed = TRIES, True
    while changed and left > 0:
        changed = False
        for extent in _extents(arguments):
            smaller = _smaller(call, arguments, extent)
            while left > 0 and not changed:
                tried = next(smaller, None)
                if tried is None:
                    break
                left -= 1
                if fails(*tried):
                    (call, arguments), changed = tried, True
    return call, arguments


def _extents(arguments: Arguments) -> list[int]:
    """The different sizes of the tensors, the largest first."""
    found = {extent for leaf in named_leaves(arguments).values() for extent in leaf.array.shape}
    return sorted((extent for extent in found if extent > 1), reverse=True)


def _parts(extent: int) -> list[tuple[int, int]]:
    """Halves, and all but a quarter or one at either end."""
    half, quarter = extent // 2, max(1, extent // 4)
    parts = [(0, half), (half, extent), (0, extent - quarter), (quarter, extent), (0, extent - 1), (1, extent)]
    return list(dict.fromkeys(parts))


def _smaller(call: Call, arguments: Arguments, extent: int) -> Iterator[tuple[Call, Arguments]]:
    """Calls in which that size is smaller: everywhere, or in one tensor."""
    names = [name for name, leaf in named_leaves(arguments).items() if extent in leaf.array.shape]
    groups = [names] if len(names) == 1 else [names, *([name] for name in names)]
    for group in groups:
        for start, stop in _parts(extent):
            yield _cut(call, arguments, frozenset(group), extent, start, stop)


def _cut(
    call: Call, arguments: Arguments, names: frozenset[str], extent: int, start: int, stop: int
) -> tuple[Call, Arguments]:
    """All dimensions of that size, of these tensors, cut to a part."""

    def part(array: AnyArray) -> AnyArray:
        return np.ascontiguousarray(
            array[tuple(slice(start, stop) if size == extent else slice(None) for size in array.shape)]
        )

    def leaf(value: Any, name: str) -> Any:
        if not isinstance(value, Leaf) or name not in names:
            return value
        array = part(value.array).reshape(_shape(value.array.shape, extent, stop - start))
        return replace(value, array=array, strides=_strides(value, array.shape))

    def spec(value: Any, name: str) -> Any:
        if not isinstance(value, TensorSpec) or name not in names:
            return value
        return replace(value, shape=_shape(value.shape, extent, stop - start), stride=None)

    args, kwargs = map_tree(call.args, "input", spec), map_tree(dict(call.kwargs), "kwargs", spec)
    return replace(call, args=args, kwargs=kwargs), mapped(arguments, leaf)


def _shape(shape: tuple[int, ...], extent: int, size: int) -> tuple[int, ...]:
    return tuple(size if each == extent else each for each in shape)


def _strides(leaf: Leaf, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Those of the same layout: dimensions in the same order in memory, the innermost as far apart as before."""
    if leaf.strides is None:
        return None
    step = min((stride for stride in leaf.strides if stride), default=1)
    found = [0] * len(shape)
    for dim in sorted(range(len(shape)), key=lambda dim: leaf.strides[dim] if leaf.strides is not None else 0):
        if leaf.strides[dim]:
            found[dim] = step
            step *= max(shape[dim], 1)
    return tuple(found)
