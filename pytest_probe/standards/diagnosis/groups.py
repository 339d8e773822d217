"""Grouped products whose groups begin or end elsewhere than the call says, or that took another group's matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from pytest_probe.numerics.dtypes import AnyArray, BoolArray, Float64Array, widen
from pytest_probe.standards.diagnosis.failed_output import NEARLY_ALL, Cause, FailedOutput

# Groups that are looked at, of those with wrong lines; other groups whose matrices are tried for one, the nearest ones.
_GROUPS, _OTHERS = 4, 16
# Elements of an output beyond which the reference is not run again.
_LARGEST = 1 << 20


def wrong_groups(failed: FailedOutput) -> Cause | None:
    """Rows or columns of a group were multiplied by another group's matrix."""
    comparison = failed.comparison
    if "scaled_products" not in comparison.classes or comparison.direction == "backward" or not failed.whole:
        return None
    arrays = {name: value for name, value in comparison.call.given.items() if isinstance(value, np.ndarray)}
    if not {"input", "mat2", "offs"} <= arrays.keys() or failed.wrong.size > _LARGEST:
        return None
    a, b, offs = arrays["input"], arrays["mat2"], arrays["offs"]
    if a.ndim == b.ndim:
        # Groups of what is added up: an end, or all of them, one place late or early.
        for words, ends in _moved_ends(offs):
            found = _computed(failed, {"offs": ends})
            if found is not None and failed.explained(found):
                return Cause("groups", words)
        return None
    return _other_matrices(failed, offs, "mat2" if a.ndim == 2 else "input")


def _computed(failed: FailedOutput, values: Mapping[str, AnyArray]) -> Float64Array | None:
    """What the reference gives with other arguments, by name; None where that is no such output."""
    paths = failed.comparison.call.paths
    found = failed.comparison.evidence.with_arguments({paths.get(name, name): value for name, value in values.items()})
    return None if found is None or found.shape != failed.wrong.shape else widen(found).astype(np.float64)


def _moved_ends(offs: AnyArray) -> Iterator[tuple[str, AnyArray]]:
    for step in (1, -1):
        for place, end in enumerate(offs[:_OTHERS]):
            ends = np.array(offs)
            ends[place] += step
            if step > 0:
                ends[place:] = np.maximum(ends[place:], ends[place])
            else:
                ends[:place] = np.minimum(ends[:place], ends[place])
            yield f"group {place} ends at {end + step} instead of {end}", ends
        yield f"all groups end {'one late' if step > 0 else 'one early'}", offs + step


class _Taken(Struct, frozen=True):
    """Lines of a group, rows or columns, that were multiplied by another group's matrix."""

    group: int
    lines: AnyArray
    other: int


def _other_matrices(failed: FailedOutput, offs: AnyArray, stack: str) -> Cause | None:
    """Lines of groups whose matrices lie in a stack, that argument's."""
    wrong, values = _lines(failed.wrong, stack), failed.expected.copy()
    bounds = list(pairwise([0, *(int(end) for end in offs)]))
    concerned = [group for group, (start, end) in enumerate(bounds) if wrong[start:end].any()]
    taken: list[_Taken] = []
    for group in concerned[:_GROUPS]:
        start, end = bounds[group]
        lines = start + np.flatnonzero(wrong[start:end])
        for other, found in _with_others(failed, group, len(bounds), stack):
            into, source = (side if stack == "mat2" else side.T for side in (values, found))
            into[lines] = source[lines]
            right = _lines(failed.right(values), stack, whole=True)[lines]
            if np.count_nonzero(right) >= NEARLY_ALL * right.size:
                taken.append(_Taken(group, lines, other))
                break
    if not taken or not failed.explained(values):
        return None
    return Cause("groups", _words(taken[0], bounds, "row" if stack == "mat2" else "column"))


def _lines(marks: BoolArray, stack: str, *, whole: bool = False) -> BoolArray:
    """Which rows have a mark, columns where the stack is the first operand; whole: have it in nearly all places."""
    axis = 1 if stack == "mat2" else 0
    return np.asarray(marks.mean(axis=axis) >= NEARLY_ALL if whole else marks.any(axis=axis))


def _with_others(failed: FailedOutput, group: int, count: int, stack: str) -> Iterator[tuple[int, Float64Array]]:
    """The product where a group has the matrix, and its scales, of another one."""
    given = failed.comparison.call.given
    others = sorted((place for place in range(count) if place != group), key=lambda place: abs(place - group))
    for other in others[:_OTHERS]:
        changed = {}
        for name in (stack, "scale_b" if stack == "mat2" else "scale_a"):
            value: Any = given.get(name)
            if isinstance(value, np.ndarray) and value.shape[:1] == (count,):
                changed[name] = np.array(value)
                changed[name][group] = value[other]
        found = _computed(failed, changed)
        if found is not None:
            yield other, found


def _words(taken: _Taken, bounds: list[tuple[int, int]], line: str) -> str:
    start, end = bounds[taken.group]
    first, last = int(taken.lines[0]), int(taken.lines[-1])
    if taken.lines.size == end - start:
        return f"group {taken.group} used the matrix of group {taken.other}"
    if first == start and taken.other < taken.group and bounds[taken.other][1] == start:
        return f"group {taken.other} ends at {last + 1} instead of {start}"
    if last == end - 1 and taken.other > taken.group and bounds[taken.other][0] == end:
        return f"group {taken.other} begins at {first} instead of {end}"
    return f"{line} {first} of group {taken.group} used the matrix of group {taken.other}"
