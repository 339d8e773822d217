"""Statistics of many numbers: distinct values, order, dependence of errors, and their spread as a line of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_probe.numerics.dtypes import AnyArray, Float64Array

# Elements that are searched first: sorting all of them costs more than most uses of the array.
_FIRST_ELEMENTS = 64


def has_distinct(values: AnyArray, count: int) -> bool:
    """Has the array at least `count` different values? NaN counts as one."""
    flat = values.reshape(-1)
    if np.unique(flat[:_FIRST_ELEMENTS]).size >= count:
        return True
    return flat.size > _FIRST_ELEMENTS and np.unique(flat).size >= count


# From so many elements on two sorts by 16 bits take less time than one by 64: a fifth less at 20,000 elements, two
# thirds less at four million.
_RADIX_ELEMENTS = 1 << 14


def stable_order(values: Float64Array) -> AnyArray:
    """np.argsort(values, axis=None, kind="stable"): equal ones in their order, NaN last.

    Numbers that float32 holds are sorted by their bits, 16 at a time, since NumPy sorts 16-bit integers by radix.
    """
    if values.size < _RADIX_ELEMENTS:
        return np.argsort(values, axis=None, kind="stable")
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.reshape(-1).astype(np.float32)
    if not np.array_equal(narrow, values.reshape(-1), equal_nan=True):
        return np.argsort(values, axis=None, kind="stable")
    bits = (narrow + np.float32(0)).view(np.uint32)  # -0 and 0 are equal
    # As unsigned numbers: negative ones turned round, below the others.
    keys = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    keys[np.isnan(narrow)] = np.iinfo(np.uint32).max
    low = np.argsort(keys.astype(np.uint16), kind="stable")
    high = np.argsort((keys >> 16).astype(np.uint16)[low], kind="stable")
    return low[high]


def groups_of_equal(values: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Of float32 numbers the first place of each distinct one, in ascending order, and for each number that of its
    group, as np.unique gives them. NaN equals nothing."""
    order = stable_order(values)
    ordered = values.reshape(-1)[order]
    starts = np.concatenate([np.ones(min(1, order.size), bool), ordered[1:] != ordered[:-1]])
    which = np.empty(order.size, np.int64)
    which[order] = np.cumsum(starts) - 1
    return order[starts], which


def design_effect(runs: Sequence[AnyArray], expected: AnyArray) -> float:
    """By which factor the variance of the mean squared error exceeds that of independent elements (Kish's design
    effect); 1.0 for fewer than two runs. Elements of a row of attention, for one, err together.

    runs are of one kind, each of the shape of expected. The square of each error is taken relative to its mean over the
    runs. The sum over a group of independent elements varies as the elements do; groups are a slice along an axis, a
    line along it, and the whole output.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        squares = np.abs(np.stack(list(runs)) - expected) ** 2 if len(runs) > 1 else np.empty(0)
        relative = squares / squares.mean(axis=0) - 1 if squares.size else squares
    relative = np.where(np.isfinite(relative), relative, 0.0)
    alone = float(np.sum(relative**2))
    if not alone:
        return 1.0
    return max(1.0, *(float(np.sum(total**2)) / alone for total in _group_sums(relative)))


def _group_sums(values: AnyArray) -> Iterator[AnyArray]:
    """Sums over all axes but the first, over each of them, and over all but each of them."""
    axes = tuple(range(1, values.ndim))
    yield values.sum(axis=axes)
    for axis in axes if len(axes) > 1 else ():
        yield values.sum(axis=axis)
        yield values.sum(axis=tuple(other for other in axes if other != axis))


# Columns of the line; each is wider than the one before by the same factor.
_COLUMNS = 16
_BARS = "▁▂▃▄▅▆▇█"
# The ends of the line; smaller and larger errors count at an end.
_SMALLEST, _LARGEST = 0.5, 1e15


def spread_line(errors: Float64Array) -> str:
    """A bar for each of 16 ranges from 0.5 to the largest error, each a factor wider, "<= 0.5 ▁  ▂█▁ 4.2e+06".

    errors: distances, none below 0. Smaller ones count in the first bar, inf and NaN in the last. The height goes by
    the root of the number, so that few among many are visible; an empty range is a space. "" without elements.
    """
    if not errors.size:
        return ""
    with np.errstate(invalid="ignore"):
        values = np.clip(np.nan_to_num(errors.ravel(), nan=_LARGEST, posinf=_LARGEST), _SMALLEST, _LARGEST)
    top = float(values.max())
    if top <= _SMALLEST:
        return f"all at most {_SMALLEST:g}"
    place = np.log(values / _SMALLEST) / np.log(top / _SMALLEST) * _COLUMNS
    counts = np.bincount(np.minimum(place.astype(np.int64), _COLUMNS - 1), minlength=_COLUMNS)
    heights = np.ceil(np.sqrt(counts / counts.max()) * len(_BARS)).astype(np.int64)
    bars = "".join(_BARS[height - 1] if height else " " for height in heights.tolist())
    end = "not finite" if not np.isfinite(errors).all() else f"{'>= ' if top >= _LARGEST else ''}{top:.2g}"
    return f"<= {_SMALLEST:g} {bars} {end}"
