"""Calls that can be cut along one dimension: what they give at some places follows from the same places of the
arguments that are cut, and from the others as a whole. Their reference runs piece by piece, and never as a whole.

No table says which calls can be cut like that. Two windows that touch, of different sizes, must give in float64 what
the one window over both gives: each element of an output, and of the gradient of an argument that is cut. What has no
such dimension, as the gradient of a weight or a loss, must be the sum of both, or their mean by places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import Candidate, changed_by
from pytest_probe.frameworks.base import Calls
from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.device_arrays import lying
from pytest_probe.model.dump import TensorSpec
from pytest_probe.model.run import Leaf, Run, Wanted, Way, with_leaves
from pytest_probe.numerics.dtypes import AnyArray, widen
from pytest_probe.user_errors import allowing_refusal

# Elements of the largest tensor from which a call is cut. Below it a case takes a tenth of a second.
LARGE = 2**20
# Elements of the largest tensor in a piece: 2 MiB of float64, which stay in a core's cache.
PIECE = 2**18
# Places that a piece has at least where those of a row lie side by side: 32 bytes of 16-bit numbers, since less of a
# row is read no faster; and elements up to which that holds.
BESIDE, LARGEST_PIECE = 16, 2**21
# Pieces of lists of tensors.
MOST_PIECES = 2**7
# Elements of the windows that show whether a call can be cut, and the least places that a dimension must have:
# of a batch of 8 images three, 3/8 of a run, are what a trial takes.
WINDOW, LEAST = 2**12, 8
# Where these have zeros alone: places that are looked at for other numbers, and elements of them, at least.
TRIED, TRIED_ELEMENTS = 2**10, 2**18
# The same of each tensor of a list.
WINDOW_OF_EACH = 2**3
# What another order of the same float64 operations may change, of an element and of the RMS.
SAME = 1e-12
_STREAMS = RandomStreams()

Places: TypeAlias = slice | AnyArray
Found: TypeAlias = Mapping[str, AnyArray]


class Cut(Struct, frozen=True):
    """Along which dimension each tensor is cut: leaves by argument, outputs by output; what is in neither stays whole.
    extent is the number of places there; flat tells that each tensor that is cut counts as one-dimensional. means are
    the outputs that are the mean of what pieces give, by their places, and not the sum. spans are the first and the
    last place but one of each tensor, where lists of tensors are cut one tensor after the other; else each has all."""

    extent: int
    leaves: Mapping[str, int]
    outputs: Mapping[str, int]
    flat: bool = False
    means: frozenset[str] = frozenset()
    spans: Mapping[str, tuple[int, int]] = {}

    def at(self, name: str, array: Any, places: Places) -> Any:
        """Some places of an argument, an output or its incoming gradient, or an argument's gradient; the whole of one
        that is not cut."""
        axis = self.axis(name)
        if axis is None:
            return array
        own = self.own(name, places)
        return array.reshape(-1)[own] if self.flat else array[(*(slice(None),) * axis, own)]

    def own(self, name: str, places: Places) -> Places:
        """Those of the places that a tensor has, counted from its first one."""
        if name not in self.spans:
            return places
        if isinstance(places, slice):
            start, stop = self.spans[name]
            return slice(*(min(max(end, start), stop) - start for end in (places.start, places.stop)))
        return self.chosen(name, places)

    def chosen(self, name: str, places: AnyArray) -> AnyArray:
        """The same of places that are no slice."""
        if name not in self.spans:
            return places
        start, stop = self.spans[name]
        return places[(places >= start) & (places < stop)] - start

    def first(self, name: str) -> int:
        """The first place of a tensor."""
        return self.spans[name][0] if name in self.spans else 0

    def leaves_at(self, leaves: Mapping[str, Leaf], places: Places) -> dict[str, Leaf]:
        """The arguments at some places; a tensor that was passed twice stays one."""
        taken: dict[tuple[int, bool], AnyArray] = {}
        found = {}
        for name, leaf in leaves.items():
            key = id(leaf.array), name in self.leaves
            if key not in taken:
                taken[key] = self.at(name, leaf.array, places)
            there = None if leaf.there is None else self.at(name, leaf.there, places)
            found[name] = Leaf(taken[key], leaf.requires_grad, there=there)
        return found

    def incoming_at(self, incoming: Found, places: Places) -> dict[str, AnyArray]:
        """The incoming gradients of outputs at some places, in memory of their own: what lies as a part of the whole
        does would be laid out in as much memory as that."""
        return {
            name: self._share(name, np.asarray(self.at(name, array, places), order="C"), places)
            for name, array in incoming.items()
        }

    def _share(self, name: str, array: AnyArray, places: Places) -> AnyArray:
        """What a piece adds to an output, or to its gradient."""
        if name not in self.means:
            return array
        count = places.stop - places.start if isinstance(places, slice) else places.size
        share = count / self.extent
        return np.asarray(widen(array) * share) if isinstance(array, np.ndarray) else array * share

    def joined(
        self, leaves: Mapping[str, Leaf], piece: Callable[[slice], Mapping[str, AnyArray]]
    ) -> dict[str, AnyArray]:
        """Of what all pieces give, the sums of what is not cut."""
        sums: dict[str, AnyArray] = {}
        for window in self.windows({name: leaf.array for name, leaf in leaves.items()}):
            self.add(sums, lying(piece(window)), window)
        return {name: np.asarray(array) for name, array in sums.items()}

    def add(self, sums: dict[str, AnyArray], found: Mapping[str, AnyArray], window: Places) -> None:
        """Add what a piece gives of what is not cut."""
        for name, array in found.items():
            if self.axis(name) is None:
                share = self._share(name, widen(array) if isinstance(array, np.ndarray) else array, window)
                sums[name] = sums[name] + share if name in sums else share

    def axis(self, name: str) -> int | None:
        """Of an argument or an output; None for one that stays whole."""
        return self.outputs.get(name, self.leaves.get(name))

    def fits(self, name: str, whole: tuple[int, ...], piece: tuple[int, ...]) -> bool:
        """Can an output, or an argument, of this shape have such a piece?"""
        axis = self.axis(name)
        if axis is None:
            return whole == piece
        if self.flat:
            start, stop = self.spans.get(name, (0, self.extent))
            return math.prod(whole) == stop - start
        return whole == (*piece[:axis], self.extent, *piece[axis + 1 :])

    def windows(self, arrays: Mapping[str, AnyArray]) -> Iterator[slice]:
        """All places, in pieces of at most about PIECE elements of the largest of these tensors. Of lists in some
        larger ones, since each piece has a part, or nothing, of each tensor."""
        largest = max(1, *(array.size for array in arrays.values()))
        if self.spans:
            step = max(PIECE, self.extent // MOST_PIECES)
        else:
            step = max(1, PIECE * self.extent // largest)
            last = (array.ndim > 1 and self.axis(name) == array.ndim - 1 for name, array in arrays.items())
            if not self.flat and any(last):
                step = max(step, min(BESIDE, LARGEST_PIECE * self.extent // largest))
        for start in range(0, self.extent, step):
            yield slice(start, min(start + step, self.extent))


class Corner(Struct, frozen=True):
    """A window of a call that can be cut: its leaves, the run of them, and what that can give gradients of."""

    cut: Cut
    leaves: Mapping[str, Leaf]
    run: Run
    wanted: Wanted | None

    @property
    def has_pieces(self) -> bool:
        """Of each output that has more than one element?"""
        return all(name in self.cut.outputs or np.size(value) == 1 for name, value in self.run.outputs.items())

    def fits(self, recorded: Sequence[tuple[str, Any]]) -> bool:
        """Have the outputs of the whole call the recorded names and shapes?"""
        if not recorded:
            return True
        wanted = dict(recorded)
        return wanted.keys() == self.run.outputs.keys() and all(
            not isinstance(spec, TensorSpec) or self.cut.fits(name, spec.shape, self.run.outputs[name].shape)
            for name, spec in wanted.items()
        )


def is_large(leaves: Mapping[str, Leaf], outputs: Iterable[tuple[int, ...]]) -> bool:
    """Is a call so large that it should be cut? A list of tensors counts as one. outputs are the recorded shapes."""
    if any(math.prod(shape) >= LARGE for shape in outputs):
        return True
    # Nearly all calls are small, and need no sizes of lists.
    if sum([leaf.array.size for leaf in leaves.values()]) < LARGE:
        return False
    sizes = Counter[str]()
    for name, leaf in leaves.items():
        sizes[".".join(name.split(".")[:2])] += leaf.array.size
    return max(sizes.values()) >= LARGE


def corner_of(
    calls: Calls,
    candidate: Candidate,
    way: Way,
    run: Callable[[Candidate], tuple[Run, Wanted | None]],
) -> Corner | None:
    """A window of the call, and how it is cut; None where it cannot be. Where an output would be a sum over the pieces,
    as over a convolution's input channels, a cut that has pieces of it is better. run gives the reference's run of a
    candidate, and what that can give gradients of."""
    leaves = candidate.arguments.tensors
    found: Corner | None = None
    for cut in _possible(leaves):
        with allowing_refusal():
            corner = _Trial(calls, candidate, way, run, cut, leaves).corner()
            if corner is None:
                continue
            if corner.has_pieces:
                return corner
            found = found or corner
    return found


def _possible(leaves: Mapping[str, Leaf]) -> Iterator[Cut]:
    """As one-dimensional where all shapes are equal, else along each dimension of the largest tensor, the longest
    first, in each way in which the others may have that dimension."""
    largest = max(leaves.values(), key=lambda leaf: leaf.array.size).array
    equal = [name for name, leaf in leaves.items() if leaf.array.shape == largest.shape]
    if largest.ndim > 1 and all(leaf.array.size == 1 or name in equal for name, leaf in leaves.items()):
        yield Cut(largest.size, dict.fromkeys(equal, 0), {}, flat=True)
    lists = _of_lists(leaves)
    if lists is not None:
        yield lists
    tried: list[dict[str, int]] = []
    for axis in sorted(range(largest.ndim), key=lambda axis: -largest.shape[axis]):
        extent = largest.shape[axis]
        if extent < LEAST:
            return
        # As tensors are broadcast; as indices lead to rows; as a norm's weight has the dimension of channels.
        for way in range(3):
            axes = {}
            for name, leaf in leaves.items():
                ndim = leaf.array.ndim
                ways = axis - (largest.ndim - ndim), axis, 0 if ndim == 1 else -1
                own = axis if ndim == largest.ndim else ways[way]
                if 0 <= own < leaf.array.ndim and leaf.array.shape[own] == extent:
                    axes[name] = own
            if axes not in tried:
                tried.append(axes)
                yield Cut(extent, axes, {})


def _of_lists(leaves: Mapping[str, Leaf]) -> Cut | None:
    """One tensor after the other of each list, where those at one index have one shape, or a single element; None where
    the arguments are no such lists."""
    items: dict[str, list[str]] = {}
    for name in leaves:
        items.setdefault(name.rpartition(".")[2] if name.count(".") == 2 else "", []).append(name)
    alone = [leaves[name].array.size for name in items.pop("", [])]
    seen, end, spans = set[int](), 0, dict[str, tuple[int, int]]()
    for names in items.values():
        shape = max((leaves[name].array.shape for name in names), key=math.prod)
        like = [name for name in names if leaves[name].array.shape == shape]
        alone += [leaves[name].array.size for name in names if name not in like]
        arrays = {id(leaves[name].array) for name in like}
        if not seen.isdisjoint(arrays):
            return None
        seen |= arrays
        spans.update(dict.fromkeys(like, (end, end + math.prod(shape))))
        end += math.prod(shape)
    if len(items) < 2 or max(alone, default=1) > 1:
        return None
    return Cut(end, dict.fromkeys(spans, 0), {}, flat=True, spans=spans)


class _Trial(Struct, frozen=True):
    """Three windows of a call: two that touch, and the one over both."""

    calls: Calls
    candidate: Candidate
    way: Way
    run: Callable[[Candidate], tuple[Run, Wanted | None]]
    cut: Cut
    leaves: Mapping[str, Leaf]

    def corner(self) -> Corner | None:
        windows = _of_each(self.cut) if self.cut.spans else _in_the_middle(self.cut, self.leaves)
        leaves = self.cut.leaves_at(self.leaves, windows.both)
        run, wanted = self.run(replace(self.candidate, arguments=with_leaves(self.candidate.arguments, leaves)))
        parts = []
        for window in windows.parts:
            part = with_leaves(self.candidate.arguments, self.cut.leaves_at(self.leaves, window))
            parts.append(self.calls.run(self.candidate.reference, part, self.way, wanted))
        axes, changed = windows.axes(run, parts), changed_by(run, leaves)
        # Of what stays whole only a single element may be written to, as a count of steps: each piece must then leave
        # the same one.
        if axes is None or any(leaves[name].array.size > 1 for name in changed - self.cut.leaves.keys()):
            return None
        own = windows.with_outputs(windows.own, axes)
        uncut = (run.outputs.keys() | changed) - axes.keys() - self.cut.leaves.keys()
        # Of lists no output is a sum.
        for means in (frozenset[str](), uncut):
            cut = replace(own, means=frozenset(means))
            if _agree(cut, _arrays(run, changed), [_arrays(each, changed) for each in parts], windows.halves):
                break
        else:
            return None
        if wanted is not None and not self._gradients_agree(cut, run, parts, windows.halves):
            return None
        return Corner(replace(windows.with_outputs(self.cut, axes), means=cut.means), leaves, run, wanted)

    def _gradients_agree(self, cut: Cut, run: Run, parts: list[Run], halves: tuple[Places, Places]) -> bool:
        incoming = {
            name: _STREAMS.at(f"cut\0{name}").standard_normal(run.outputs[name].shape) for name in run.differentiable
        }
        found = [
            self.calls.gradients(part, cut.incoming_at(incoming, half))
            for part, half in zip(parts, halves, strict=True)
        ]
        return _agree(replace(cut, means=frozenset()), self.calls.gradients(run, incoming), found, halves)


class _Windows(Struct, frozen=True):
    """Places of two windows, and of the one over both; the two parts once more counted within that, and the cut of a
    call that has no other places."""

    both: Places
    parts: tuple[Places, Places]
    halves: tuple[Places, Places]
    own: Cut

    def axes(self, run: Run, parts: list[Run]) -> dict[str, int] | None:
        """The dimension in which each output of two windows differs, if it does; None where one is no array.
        Of lists all must have the elements of the tensors at their index."""
        found = {}
        for name, value in run.outputs.items():
            values = [part.outputs.get(name) for part in parts]
            shapes = [value.shape for value in (value, *values) if isinstance(value, np.ndarray)]
            if len(shapes) < 3 or len({len(shape) for shape in shapes}) > 1:
                return None
            axes = [axis for axis, extents in enumerate(zip(*shapes, strict=True)) if len(set(extents)) > 1]
            if not axes and not self.own.spans:  # a sum, or a mean
                continue
            if len(axes) != 1 or [shape[axes[0]] for shape in shapes] != self._lengths(name):
                return None
            found[name] = axes[0]
        return found

    def _lengths(self, name: str) -> list[int]:
        """How many places an output has in the window over both, and in each of the two."""
        span = _span_of(self.own, name)
        lengths = []
        for places in (slice(0, self.own.extent), *self.halves):
            counted = replace(self.own, spans={name: span}).own(name, places)
            lengths.append(counted.stop - counted.start if isinstance(counted, slice) else counted.size)
        return lengths

    def with_outputs(self, cut: Cut, axes: Mapping[str, int]) -> Cut:
        """The cut with what is known of the outputs."""
        spans = {**cut.spans, **{name: _span_of(cut, name) for name in axes}} if cut.spans else cut.spans
        return replace(cut, outputs=axes, spans=spans)


def _span_of(cut: Cut, output: str) -> tuple[int, int]:
    """The places of the output at an index of a list; none where no tensor has that index."""
    if not cut.spans:
        return 0, cut.extent
    index = output.rpartition(".")[2]
    return next((span for name, span in cut.spans.items() if name.rpartition(".")[2] == index), (0, 0))


def _in_the_middle(cut: Cut, leaves: Mapping[str, Leaf]) -> _Windows:
    """Of one dimension."""
    elements = max(leaves[name].array.size for name in cut.leaves) // cut.extent
    size = max(1, min(WINDOW // max(elements, 1), (cut.extent - 1) // 4))
    count = 2 * size + 1
    first = _where_it_shows(cut, leaves, cut.extent // 3, count)
    parts = slice(first, first + size), slice(first + size, first + count)
    halves = slice(0, size), slice(size, count)
    # Counted from the first window's first place, as for a call that is no larger.
    return _Windows(slice(first, first + count), parts, halves, replace(cut, extent=count))


def _where_it_shows(cut: Cut, leaves: Mapping[str, Leaf], first: int, count: int) -> int:
    """The first place of a window that has other numbers than zeros, of each argument if possible: `first`, if that one
    has them. Moments of an embedding have rows of zeros, of which a call shows nothing."""
    for name in cut.leaves:
        array, axis = leaves[name].array, 0 if cut.flat else cut.leaves[name]
        if np.any(cut.at(name, array, slice(first, first + count)) != 0):
            continue
        tried = max(TRIED, TRIED_ELEMENTS * cut.extent // max(array.size, 1))
        places = np.linspace(0, cut.extent - 1, min(cut.extent, tried), dtype=np.int64)
        found = cut.at(name, array, places) != 0
        shown = places[np.any(found, axis=tuple(other for other in range(found.ndim) if other != axis))]
        first = min(int(shown[0]), cut.extent - count) if shown.size else first
    return first


def _of_each(cut: Cut) -> _Windows:
    """Of each tensor of the lists."""
    parts: tuple[list[AnyArray], list[AnyArray]] = [], []
    halves: tuple[list[AnyArray], list[AnyArray]] = [], []
    spans, extent = dict[tuple[int, int], tuple[int, int]](), 0
    for start, stop in sorted(set(cut.spans.values())):
        count = min(2 * WINDOW_OF_EACH + 1, stop - start)
        first, places = (start + stop - count) // 2, np.arange(count)
        for part, half, taken in zip(parts, halves, np.split(places, [count // 2]), strict=True):
            part.append(first + taken)
            half.append(extent + taken)
        spans[start, stop] = extent, extent + count
        extent += count
    own = replace(cut, extent=extent, spans={name: spans[span] for name, span in cut.spans.items()})
    one, other, one_half, other_half = (np.concatenate(found) for found in (*parts, *halves))
    return _Windows(np.sort(np.concatenate([one, other])), (one, other), (one_half, other_half), own)


def _arrays(run: Run, changed: frozenset[str]) -> dict[str, Any]:
    return {**run.outputs, **{name: run.after(name) for name in changed}}


def _agree(
    cut: Cut, whole: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], halves: tuple[Places, Places]
) -> bool:
    """Do two parts give what the whole of both gives? Zeros agree with everything, and so do integers that happen to
    add up: they show nothing."""
    if not whole or any(part.keys() != whole.keys() for part in parts):
        return False
    if not any(np.any(array) for array in whole.values()):
        return False
    sums: dict[str, AnyArray] = {}
    for part, window in zip(parts, halves, strict=True):
        cut.add(sums, part, window)
    for name, wanted in whole.items():
        axis = cut.axis(name)
        returned = axis is None and name.startswith("output")
        if returned and (wanted.dtype.kind not in "fc" or not np.any(wanted)):
            return False
        found = sums[name] if axis is None else np.concatenate([part[name] for part in parts], axis=axis)
        if found.shape != wanted.shape or not _is_same(found, wanted, parts[0][name] if axis is None else wanted):
            return False
    return True


def _is_same(found: AnyArray, wanted: AnyArray, terms: AnyArray) -> bool:
    """But for the order of float64 operations; terms are of the size of what is added."""
    if found.dtype.kind not in "fc":
        return bool(np.array_equal(found, wanted))
    finite = np.abs(terms[np.isfinite(terms)])
    usual = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    return bool(np.allclose(found, wanted, rtol=SAME, atol=SAME * usual, equal_nan=True))
