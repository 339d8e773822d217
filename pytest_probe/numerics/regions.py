"""Where a mask is true, by the smallest region that a few words name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pytest_probe.numerics.dtypes import BoolArray

# The share of the true elements that a region must hold; the share of its own elements that must be true.
COVERAGE, DENSE = 0.95, 0.5
# Elements, and indices of a dimension, that are named one by one.
FEW = 3
# The largest share of the array of a region that is not wrong all over.
SMALLER = 0.75
# A region that leaves some elements out must be as much smaller than one that holds all.
WORTH = 0.5
# As many elements as a kernel of 7 x 7 pads. Chosen.
WIDEST_BORDER = 3
NAMES: Mapping[int, str] = {}

Counts = npt.NDArray[np.int64]


class Span(Struct, frozen=True):
    """Indices of one dimension, and their name; "" for all of them."""

    indices: npt.NDArray[np.int64]
    description: str
    window: bool = False


class Region(Struct, frozen=True):
    """A part of an array: how many elements it has, how many of them are true, and its name."""

    size: int
    true: int
    description: str
    effort: int = 0


def describe(mask: BoolArray, names: Mapping[int, str] = NAMES) -> str:
    """The smallest region with at least 95 % of the true elements, half of which are true, in words.

    "rows 12:16 of dim 0", "last 16 of dim -1", "every 8th of dim 1 from 3", "tile of 16 x 16 at (32, 48)". names says
    what dimensions hold ({1: "head"}). "" for a mask without true elements.
    """
    total = int(np.count_nonzero(mask))
    if not total:
        return ""
    if total <= FEW or mask.ndim == 0:
        places = ", ".join(f"[{', '.join(map(str, place))}]" for place in np.argwhere(mask).tolist())
        return f"element {places}" if total == 1 else f"elements {places}"
    if total >= COVERAGE * mask.size:
        return "everywhere"
    boxes = list(_boxes(mask, total, names))
    regions = (*boxes, *_flat(mask, total), *_borders(mask, total), *_triangles(mask, total))
    found = [region for region in regions if region.size < mask.size]
    dense = [
        region
        for region in found
        if region.true >= (DENSE if region.size <= SMALLER * mask.size else COVERAGE) * region.size
    ]
    if dense:
        return min(dense, key=lambda region: (region.size, region.effort)).description
    thin = [region for region in boxes if region.size <= mask.size / 2]
    if thin:
        region = min(thin, key=lambda region: (region.size, region.effort))
        return f"{region.description}, {100 * region.true / region.size:.2g} % of it"
    return "scattered"


def _boxes(mask: BoolArray, total: int, names: Mapping[int, str]) -> Iterator[Region]:
    """The product of a span of each dimension: around all true elements, and around most."""
    axes = range(mask.ndim)
    counts = [mask.sum(axis=tuple(other for other in axes if other != axis), dtype=np.int64) for axis in axes]
    whole = [_span(count, total, axis, mask.ndim, names) for axis, count in enumerate(counts)]
    yield _box(mask, whole)
    # A wrong element or two elsewhere shall not hide where the others are.
    need = (1 - (1 - COVERAGE) / max(mask.ndim, 1)) * total
    fewer = [_span(count, need, axis, mask.ndim, names) for axis, count in enumerate(counts)]
    most = [
        small if small.indices.size <= WORTH * large.indices.size else large
        for small, large in zip(fewer, whole, strict=True)
    ]
    box = _box(mask, most)
    if box.true >= COVERAGE * total:
        yield box


def _box(mask: BoolArray, spans: list[Span]) -> Region:
    held = mask[np.ix_(*(span.indices for span in spans))]
    parts = [span.description for span in spans]
    if len(spans) > 1 and spans[-1].window and spans[-2].window:
        extents = " x ".join(str(span.indices.size) for span in spans[-2:])
        place = ", ".join(str(int(span.indices[0])) for span in spans[-2:])
        parts[-2:] = [f"tile of {extents} at ({place})"]
    return Region(
        held.size,
        int(np.count_nonzero(held)),
        ", ".join(filter(None, parts)),
        sum(bool(span.description) for span in spans),
    )


def _span(counts: Counts, need: float, axis: int, rank: int, names: Mapping[int, str]) -> Span:
    """The smallest set of indices with a name that holds `need` true elements."""
    kind = names.get(axis, "row" if axis == 0 and rank > 1 else "")
    dim = "dim -1" if axis == rank - 1 and rank > 1 else f"dim {axis}"
    found = [_window(counts, need, kind, dim, axis in names)]
    found += [span for span in (_progression(counts, need, dim), _listed(counts, need, kind, dim)) if span is not None]
    return min(found, key=lambda span: span.indices.size)


def _window(counts: Counts, need: float, kind: str, dim: str, named: bool) -> Span:
    """The shortest run of indices."""
    sums = np.concatenate(([0], np.cumsum(counts)))
    ends = np.searchsorted(sums, sums + need, side="left")
    lengths = np.where(ends < sums.size, ends - np.arange(sums.size), counts.size + 1)
    start = int(np.argmin(lengths))
    indices = np.arange(start, start + int(lengths[start]))
    words = _window_words(start, int(indices[-1]) + 1, counts.size, kind, dim, named)
    return Span(indices, words, bool(words) and indices.size > 1)


def _window_words(start: int, end: int, extent: int, kind: str, dim: str, named: bool) -> str:
    if end - start == extent:
        return ""
    where = f"({dim})" if named else f"of {dim}"
    if end - start == 1:
        return f"{'last ' if end == extent > 1 else ''}{kind or 'index'} {start} {where}"
    if not named and (start == 0 or end == extent):
        return f"{'first' if start == 0 else 'last'} {end - start} {where}"
    plural = f"{kind}s" if kind else "indices"
    return f"{plural} {start}:{end} {where}"


def _progression(counts: Counts, need: float, dim: str) -> Span | None:
    """Every n-th index, n as large as can be."""
    found = np.flatnonzero(counts)
    # The largest step that holds all true indices divides all their distances; three indices make a rule.
    step = int(reduce(np.gcd, np.diff(found), 0)) if found.size >= 3 else 0
    start = int(found[0]) % step if step > 1 else 0
    indices = np.arange(start, counts.size, step) if step > 1 else found[:0]
    if indices.size < 3 or counts[indices].sum() < need:
        return None
    since = f" from {start}" if start else ""
    return Span(indices, f"every {_ordinal(step)} of {dim}{since}")


def _ordinal(number: int) -> str:
    if number == 2:
        return "second"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 // 10 != 1 else 0, "th")
    return f"{number}{ending}"


def _listed(counts: Counts, need: float, kind: str, dim: str) -> Span | None:
    order = np.argsort(-counts, kind="stable")[:FEW]
    held = np.cumsum(counts[order])
    if held[-1] < need:
        return None
    indices = np.sort(order[: int(np.searchsorted(held, need)) + 1])
    plural = f"{kind}s" if kind else "indices"
    return Span(indices, f"{plural} {', '.join(map(str, indices.tolist()))} of {dim}")


def _flat(mask: BoolArray, total: int) -> Iterator[Region]:
    """A run of elements in the order of memory."""
    if mask.ndim < 2:
        return
    found = np.flatnonzero(mask)
    start, end = int(found[0]), int(found[-1]) + 1
    words = f"last {end - start:,} elements in order" if end == mask.size else f"elements {start:,}:{end:,} in order"
    yield Region(end - start, total, words, 1)


def _borders(mask: BoolArray, total: int) -> Iterator[Region]:
    """The outer ones of the last two dimensions, or of the one behind batch and channel."""
    rank = 2 if mask.ndim != 3 else 1
    spatial = mask.shape[-rank:]
    if mask.ndim < 2 or min(spatial) < 4:
        return
    # How far each place is from the nearest border.
    distance = np.full(spatial, max(spatial))
    for axis, size in enumerate(spatial):
        ends = np.minimum(np.arange(size), np.arange(size)[::-1])
        distance = np.minimum(distance, ends.reshape([-1 if axis == other else 1 for other in range(rank)]))
    inside = np.bincount(distance.ravel(), mask.reshape(-1, *spatial).sum(axis=0).ravel().astype(np.float64))
    extent = np.bincount(distance.ravel()) * (mask.size // distance.size)
    for width in range(1, min(WIDEST_BORDER, min(spatial) // 2 - 1) + 1):
        true = int(inside[:width].sum())
        if true >= COVERAGE * total:
            dims = "dim" if rank == 1 else f"{rank} dims"
            yield Region(int(extent[:width].sum()), true, f"outer {width} of the last {dims}", 1)
            return


def _triangles(mask: BoolArray, total: int) -> Iterator[Region]:
    """On the diagonal of the last two dimensions, next to it, or on one side of it."""
    if mask.ndim < 2 or min(mask.shape[-2:]) < 3:
        return
    rows, columns = np.ogrid[: mask.shape[-2], : mask.shape[-1]]
    counts = mask.reshape(-1, *mask.shape[-2:]).sum(axis=0)
    for words, part in (
        ("on", rows == columns),
        ("one above", rows == columns - 1),
        ("one below", rows == columns + 1),
        ("above", rows < columns),
        ("below", rows > columns),
    ):
        true = int(counts[part].sum())
        if true >= COVERAGE * total:
            size = int(np.count_nonzero(part)) * (mask.size // part.size)
            yield Region(size, true, f"{words} the diagonal of the last two dims", 2)
