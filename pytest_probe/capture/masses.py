"""Values that stand many times in a floating array: zeros, the most frequent other value, rows of one value.

Max, Min, Mean and Norm say nothing about them, and many faults show only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from pytest_probe.capture.snapshot import Seen, json_number

_FEW = 2  # equal neighbours that are chance
_LOOKED = 64  # of so many elements one equal neighbour: rarer, no value has more than an eighth of them
_MOST = 3 / 4  # of the constant rows: so many of one value, and the others are chance
_LEAST = 1 / 16  # share from which on a value other than zero is told


def fill_masses(
    values: np.ndarray, starts: np.ndarray, seen: Sequence[Seen], widths: Sequence[int] | None = None
) -> None:
    """Fill in the masses of floating arrays, or samples of such, that lie one behind the other in values.

    starts: where each begins, from 0 on, rising; widths: elements in a row of each, 0 where it has no rows; None: as
    their shapes say.
    """
    for one in seen:
        one.zeros = 0
    zero, equal = values == 0, np.empty(values.size, bool)
    np.equal(values[1:], values[:-1], out=equal[1:])
    equal[starts] = False
    sizes = np.diff(starts, append=values.size)
    if zero.any():
        shares = _counts(zero, starts) / sizes
        for index in np.flatnonzero(shares).tolist():
            seen[index].zeros = float(shares[index])
    if equal.any():
        counts = _counts(equal, starts)
        for index in np.flatnonzero(frequent(counts, sizes)).tolist():
            width = _width(seen[index]) if widths is None else widths[index]
            _look(values[starts[index] : starts[index] + sizes[index]], width, seen[index])


def frequent(repeats: Any, sizes: Any) -> Any:
    """Are there so many elements that equal the one before, among so many, that a value may stand many times? Whole
    numbers or arrays of them."""
    return (repeats > _FEW) & (repeats * _LOOKED >= sizes)


def _width(seen: Seen) -> int:
    """Elements in a row; 0 where rows do not lie in order."""
    return int(seen.shape[-1]) if len(seen.shape) > 1 and seen.stride is UNSET else 0


def _look(values: np.ndarray, width: int, seen: Seen) -> None:
    # What has one value only is told by its extremes.
    if seen.max == seen.min and seen.nan is UNSET:
        return
    if ((values[1:] == values[:-1]) & (values[1:] != 0)).any():
        _look_for_mode(values, seen)
    if width > 1:
        _look_at_rows(values.reshape(-1, width), seen)


def _counts(found: np.ndarray, starts: np.ndarray) -> np.ndarray:
    counts: np.ndarray = np.add.reduceat(found.view(np.int8), starts, dtype=np.int64)
    return counts


def _look_for_mode(values: np.ndarray, seen: Seen) -> None:
    ordered = np.sort(values[np.isfinite(values) & (values != 0)])
    if not ordered.size:
        return
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    counts = np.diff(ends, prepend=-1)
    most = int(counts.argmax())
    share = float(counts[most] / values.size)
    if share >= _LEAST:
        seen.mode = [float(ordered[ends[most]]), share]


def _look_at_rows(rows: np.ndarray, seen: Seen) -> None:
    constant = (rows == rows[:, :1]).all(axis=1)
    if not constant.any():
        return
    firsts = rows[constant, 0]
    # Most of them, if most are alike.
    value = float(np.sort(firsts)[firsts.size // 2])
    count = int(np.count_nonzero(firsts == value))
    shared = count >= _MOST * firsts.size
    share = (count if shared else firsts.size) / len(rows)
    # Rows of few, or of sampled, elements are equal by chance where a value is frequent.
    alike = float(np.count_nonzero(rows == value) / rows.size) if shared else 0.0
    chance = alike ** rows.shape[1]
    if share - chance > (alike - chance) / 4:
        seen.constant_rows = [share, json_number(value) if shared else None]
