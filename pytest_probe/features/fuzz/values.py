"""Values of a failing call made simple: regions of its tensors are zeroed, its numbers rounded and halved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from pytest_probe.model.arguments import Arguments, Leaf, with_leaves
from pytest_probe.numerics.dtypes import AnyArray, is_floating, widen

# Calls that are made for it at most.
TRIES = 60
# Numbers of moderate size, which most calls that need large ones fail with.
MODERATE = 128.0


def simplified(arguments: Arguments, fails: Callable[[Arguments], bool]) -> Arguments:
    """Arguments of the same shapes with which the call still fails, with as many zeros and as few digits as are found
    in TRIES calls."""
    left = TRIES

    def still_fails(changed: Arguments) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(changed)

    for name, leaf in arguments.tensors.items():
        if not is_floating(leaf.array.dtype):
            continue
        arguments = _zeroed(arguments, name, leaf, still_fails)
        for change in (np.sign, _clipped, np.rint, _one_digit, _two_digits):
            current = arguments.tensors[name]
            arguments = _changed(arguments, name, current, change, still_fails)
        arguments = _halved(arguments, name, still_fails)
    return arguments


def _zeroed(arguments: Arguments, name: str, leaf: Leaf, fails: Callable[[Arguments], bool]) -> Arguments:
    """Regions of the flattened tensor, halves first, then parts of those that matter."""
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


def _halved(arguments: Arguments, name: str, fails: Callable[[Arguments], bool]) -> Arguments:
    """Numbers beyond 1 halved, as long as the call fails."""
    for _ in range(12):
        leaf = arguments.tensors[name]
        changed = _changed(arguments, name, leaf, _half_of_large, fails)
        if changed is arguments:
            break
        arguments = changed
    return arguments


def _half_of_large(values: AnyArray) -> AnyArray:
    return np.where(np.abs(values) > 2, np.rint(values / 2), values)


def _clipped(values: AnyArray) -> AnyArray:
    return np.asarray(np.clip(values, -MODERATE, MODERATE))


def _digits(values: AnyArray, digits: int) -> AnyArray:
    power = 10.0 ** (np.floor(np.log10(np.where(values == 0, 1.0, np.abs(values)))) - digits + 1)
    return np.asarray(np.rint(values / power) * power)


def _one_digit(values: AnyArray) -> AnyArray:
    return _digits(values, 1)


def _two_digits(values: AnyArray) -> AnyArray:
    return _digits(values, 2)
