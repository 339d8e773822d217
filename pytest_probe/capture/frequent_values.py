"""Values that occur many times in a floating array: zeros, the most frequent other value, rows of one value.

Max, Min, Mean and Norm say nothing about them, and many faults show only there. Of a large tensor a few hundred
elements are looked at: they are read right after the tensor was counted, where they are, and copied only if a value may
occur many times among them.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET

from pytest_probe.capture.snapshot import Seen, json_number

FEW = 2  # equal neighbours that are chance
LOOKED = 64  # of so many elements one equal neighbour: rarer, no value has more than an eighth of them
_MOST = 3 / 4  # of the constant rows: so many of one value, and the others are chance
_LEAST = 1 / 16  # share from which on a value other than zero is recorded
# The strides and extents by which memory is walked, from the innermost on, whatever order the dimensions have; a number
# of elements where there are no gaps.
Layout: TypeAlias = int | tuple[tuple[int, int], ...]
_COUNT = 256  # elements of a sample: shares are right to about three percent
_PIECE = 4  # neighbouring elements: memory is fetched by lines
_ROWS = 32
# From this step on it is odd, so that the sample keeps no step with the tensor's own dimensions.
_LONG = 16
_SAME_WIDTH = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}
_READ = 0x100  # PyBUF_READ
_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


def fill_frequent(
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
        for index in np.flatnonzero(may_be_frequent(counts, sizes)).tolist():
            one, part = seen[index], values[starts[index] : starts[index] + sizes[index]]
            # Where there is one value only, the extremes say so.
            if one.max == one.min and one.nan is UNSET:
                continue
            if ((part[1:] == part[:-1]) & (part[1:] != 0)).any():
                _find_mode(part, one)
            # Rows that do not lie in order have no width.
            rows = len(one.shape) > 1 and one.stride is UNSET
            width = widths[index] if widths is not None else int(one.shape[-1]) if rows else 0
            if width > 1:
                _find_constant_rows(part.reshape(-1, width), one)


def may_be_frequent(repeats: Any, sizes: Any) -> Any:
    """Are there so many elements that equal the one before, among so many, that a value may occur many times? Whole
    numbers or arrays of them."""
    return (repeats > FEW) & (repeats * LOOKED >= sizes)


def _counts(found: np.ndarray, starts: np.ndarray) -> np.ndarray:
    counts: np.ndarray = np.add.reduceat(found.view(np.int8), starts, dtype=np.int64)
    return counts


def _find_mode(values: np.ndarray, seen: Seen) -> None:
    ordered = np.sort(values[np.isfinite(values) & (values != 0)])
    if not ordered.size:
        return
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    counts = np.diff(ends, prepend=-1)
    most = int(counts.argmax())
    share = float(counts[most] / values.size)
    if share >= _LEAST:
        seen.mode = [float(ordered[ends[most]]), share]


def _find_constant_rows(rows: np.ndarray, seen: Seen) -> None:
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


class Places(msgspec.Struct, gc=False):
    """Where the elements of a sample lie: extents and strides, in elements, of rows, pieces and neighbouring elements.

    row counts the elements of a row that are taken, 0 where the tensor's own rows are not known.
    """

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    row: int


@lru_cache(4096)
def places(shape: tuple[int, ...], layout: Layout, in_order: bool) -> Places:
    """Elements at about equal distances. Rows are the tensor's own where its elements lie in order, else rows of the
    two longest dimensions of its memory."""
    own = in_order and len(shape) > 1
    if own:
        rows, row = (shape[-1], math.prod(shape[:-1])), (1, shape[-1])
    else:
        found = ((1, layout),) if isinstance(layout, int) else layout
        # An expanded dimension has one element in memory.
        longest = ((0, 1), *sorted(found, key=lambda one: (one[0] > 0, one[1])))[-2:]
        row, rows = sorted(longest, key=lambda one: one[0] or math.inf)
    (between, many), (step, width) = rows, row
    # How many rows are taken, and how far they are apart.
    wanted = max(_ROWS, _COUNT // width)
    apart = max(many // wanted, 1)
    apart |= apart >= _LONG
    count = min(many // apart, wanted)
    piece = min(_PIECE, width)
    pieces = min(width // piece, max(_COUNT // (count * piece), 1))
    # Up to the end of a row, where padding and masks lie.
    along = (width // piece - 1) // max(pieces - 1, 1)
    strides = (apart * between, along * piece * step, step)
    return Places((count, pieces, piece), strides, pieces * piece if own else 0)


def copy_sample(address: int, width: int, where: Places) -> bytes:
    """The sample of a CPU tensor whose first element, of so many bytes, lies there. Frameworks take twice the time."""
    (rows, pieces, piece), (apart, along, step) = where.shape, where.strides
    reach = (rows - 1) * apart + (pieces - 1) * along + (piece - 1) * step + 1
    memory = memory_at(address, reach * width)
    strides = (apart * width, along * width, step * width)
    return np.ndarray(where.shape, _SAME_WIDTH[width], memory, 0, strides).tobytes()


def memory_at(address: int, size: int) -> Any:
    """So many bytes of this process, as a buffer that may be read while they are there."""
    return _memory(address, size, _READ)


@lru_cache(4096)
def layout_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> Layout:
    """Where the elements lie. Views of one address with the same layout hold the same elements."""
    found: list[tuple[int, int]] = []
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] * extent)
        else:
            found.append((stride, extent))
    dense = not found or (len(found) == 1 and found[0][0] == 1)
    return math.prod(shape) if dense else tuple(found)


def span(layout: Layout) -> int:
    """How many elements lie between a tensor's first and its last one, these included."""
    return layout if isinstance(layout, int) else 1 + sum((extent - 1) * stride for stride, extent in layout)


def fill_from_samples(values: np.ndarray, sampled: Sequence[Places], seen: Sequence[Seen]) -> None:
    """Fill in the masses of tensors by their samples, which lie one behind the other in values."""
    sizes = np.array([math.prod(where.shape) for where in sampled])
    fill_frequent(values, np.cumsum(sizes) - sizes, seen, [where.row for where in sampled])
