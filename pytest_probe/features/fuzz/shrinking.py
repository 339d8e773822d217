"""A failing call made smaller and simpler, beyond what hypothesis can: with the numbers that it has.

Its tensors are cut to parts, regions of them are zeroed, and their numbers rounded and halved, while the call fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from pytest_probe.check.check import Checker
from pytest_probe.features.fuzz.search import Fails
from pytest_probe.features.fuzz.trial import JudgedCall, Trials
from pytest_probe.model.dump import Call, TensorSpec
from pytest_probe.model.run import Arguments, Leaf, map_tree, mapped, with_leaves
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen

# Calls that are made for it at most.
_CUT_TRIES = 120
# Dimensions of tensors, by name and place.
_Places: TypeAlias = "frozenset[tuple[str, int]]"
# Calls that are made for it at most.
_VALUE_TRIES = 60
# Numbers of moderate size, which most calls that need large ones fail with.
_MODERATE = 128.0


def shrink(trials: Trials, found: JudgedCall, fails: Fails, shown: Checker) -> JudgedCall:
    """The call with small sizes and simple values, judged by `shown`, which may say what caused the failure. A call
    that does not fail again is one of a kernel that differs from run to run: it stays as it was found."""
    alone = trials
    if "forward" in trials.target.directions:
        # The forward by itself, where that fails.
        forward = replace(trials, target=replace(trials.target, directions=("forward",)))
        alone = forward if fails(forward.judged(found.call, found.arguments)) else trials

    def still_fails(call: Call, arguments: Arguments) -> bool:
        return fails(alone.judged(call, arguments))

    call, arguments = cut_sizes(found.call, found.arguments, still_fails)
    arguments = _simplify_values(arguments, lambda tried: still_fails(call, tried))
    last = alone.judged(call, arguments)
    arguments = _with_plain_gradients(last, lambda tried: still_fails(call, tried))
    again = replace(alone, checker=shown).judged(call, arguments)
    return again if fails(again) else found


def _with_plain_gradients(found: JudgedCall, fails: Callable[[Arguments], bool]) -> Arguments:
    """The arguments of a failing backward with incoming gradients of ones, or of whole numbers, where it fails with
    those as well."""
    failing = found.failing
    if failing is None or failing.worst is None or not failing.worst.replay.incoming:
        return found.arguments
    incoming = failing.worst.replay.incoming.values()
    for change in (np.ones_like, np.rint):
        given = tuple(Leaf(np.asarray(change(widen(array))).astype(array.dtype)) for array in incoming)
        tried = replace(found.arguments, gradients=given)
        if fails(tried):
            return tried
    return found.arguments


def cut_sizes(call: Call, arguments: Arguments, fails: Callable[[Call, Arguments], bool]) -> tuple[Call, Arguments]:
    """The call with as small sizes as are found in _CUT_TRIES calls. Sizes that are equal are cut together, since most
    belong together; where they do not, the reference rejects the call, which then does not fail."""
    tries, changed = iter(range(_CUT_TRIES)), True
    while changed:
        changed, stuck = False, {0, 1}
        # The largest first. What cannot be cut is tried again only when all else is cut.
        while extents := {each for leaf in arguments.tensors.values() for each in leaf.array.shape} - stuck:
            smaller = _smaller(call, arguments, max(extents))
            found = next((tried for tried, _ in zip(smaller, tries, strict=False) if fails(*tried)), None)
            if found is None:
                stuck.add(max(extents))
            else:
                (call, arguments), changed = found, True
    return call, arguments


def _smaller(call: Call, arguments: Arguments, extent: int) -> Iterator[tuple[Call, Arguments]]:
    """Calls in which that size is smaller: everywhere, in one place, everywhere but in one. Of it halves are left, and
    all but a quarter or one at either end."""
    sizes = {name: leaf.array.shape for name, leaf in arguments.tensors.items()}
    places = [(name, dim) for name, shape in sizes.items() for dim, size in enumerate(shape) if size == extent]
    groups = [places, *([place] for place in places), *([each for each in places if each != one] for one in places)]
    half, quarter = extent // 2, max(1, extent // 4)
    parts = [(0, half), (half, extent), (0, extent - quarter), (quarter, extent), (0, extent - 1), (1, extent)]
    for group in dict.fromkeys(frozenset(group) for group in groups if group):
        for part in dict.fromkeys(parts):
            yield _cut(call, arguments, group, slice(*part))


def _cut(call: Call, arguments: Arguments, places: _Places, part: slice) -> tuple[Call, Arguments]:
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


def _shape(shape: tuple[int, ...], name: str, places: _Places, part: slice) -> tuple[int, ...]:
    return tuple(part.stop - part.start if (name, dim) in places else size for dim, size in enumerate(shape))


def _strides(leaf: Leaf, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of the same layout: dimensions in the same order in memory, the innermost as far apart as before."""
    if leaf.strides is None:
        return None
    step = min((stride for stride in leaf.strides if stride), default=1)
    found = [0] * len(shape)
    for dim in sorted(range(len(shape)), key=leaf.strides.__getitem__):
        if leaf.strides[dim]:
            found[dim] = step
            step *= max(shape[dim], 1)
    return tuple(found)


def _simplify_values(arguments: Arguments, fails: Callable[[Arguments], bool]) -> Arguments:
    """Arguments of the same shapes with which the call still fails, with as many zeros and as few digits as are found
    in _VALUE_TRIES calls."""
    left = _VALUE_TRIES

    def still_fails(changed: Arguments) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(changed)

    for name, leaf in arguments.tensors.items():
        if not is_floating(leaf.array.dtype):
            continue
        arguments = _zeroed(arguments, name, leaf, still_fails)
        clipped = partial(np.clip, a_min=-_MODERATE, a_max=_MODERATE)
        for change in (np.sign, clipped, np.rint, partial(_digits, digits=1), partial(_digits, digits=2)):
            current = arguments.tensors[name]
            arguments = _changed(arguments, name, current, change, still_fails)
        # Numbers beyond 1 halved, as long as the call fails.
        for _ in range(12):
            before = arguments
            arguments = _changed(
                arguments,
                name,
                arguments.tensors[name],
                lambda values: np.where(np.abs(values) > 2, np.rint(values / 2), values),
                still_fails,
            )
            if arguments is before:
                break
    return arguments


def _zeroed(arguments: Arguments, name: str, leaf: Leaf, fails: Callable[[Arguments], bool]) -> Arguments:
    """Sets regions of the flattened tensor to zero: halves first, then parts of the regions that matter."""
    array = leaf.array
    todo = [(0, array.size)]
    while todo:
        start, stop = todo.pop(0)
        flat = array.reshape(-1).copy()
        if stop <= start or not np.any(flat[start:stop] != 0):
            continue
        flat[start:stop] = 0
        tried = with_leaves(arguments, {**arguments.tensors, name: replace(leaf, array=flat.reshape(array.shape))})
        if fails(tried):
            arguments, array = tried, flat.reshape(array.shape)
        elif stop - start > 1:
            middle = (start + stop) // 2
            todo += [(start, middle), (middle, stop)]
    return arguments


def _changed(
    arguments: Arguments,
    name: str,
    leaf: Leaf,
    change: Callable[[AnyArray], AnyArray],
    fails: Callable[[Arguments], bool],
) -> Arguments:
    with np.errstate(all="ignore"):
        values = np.asarray(change(widen(leaf.array)))
        array = np.asarray(np.where(np.isfinite(values), values, widen(leaf.array)).astype(leaf.array.dtype))
    if np.array_equal(array, leaf.array, equal_nan=array.dtype.kind == "f"):
        return arguments
    tried = with_leaves(arguments, {**arguments.tensors, name: replace(leaf, array=array)})
    return tried if fails(tried) else arguments


def _digits(values: AnyArray, digits: int) -> AnyArray:
    power = 10.0 ** (np.floor(np.log10(np.where(values == 0, 1.0, np.abs(values)))) - digits + 1)
    return np.asarray(np.rint(values / power) * power)
