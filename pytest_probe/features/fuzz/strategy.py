"""The strategy of drawn calls: hypothesis draws structure, a seed and a regime for each tensor, and no contents.

It draws little, and simple things first, so that it is fast and shrinks to calls that are read at a glance.

Element by element hypothesis is too slow, and it gives up from 1,000 elements on.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

from pytest_probe.features.fuzz.drawn import EXPANDED, LAYOUTS, DrawnCall, DrawnTensor, fitted
from pytest_probe.features.fuzz.regimes import FEW_NUMBERS, MIXED, RECORDED, REGIMES
from pytest_probe.features.fuzz.templates import Choice, DimOf, Key, SizeOf, Template, TensorSlot
from pytest_probe.frameworks.python.binding import works_in_place
from pytest_probe.inputs.generated import kind_of
from pytest_probe.model.run import map_tree

_Draw: TypeAlias = "Callable[[st.SearchStrategy[Any]], Any]"

# The most elements of a drawn tensor; the second in one of sixteen calls, where 16-bit numbers cannot count them.
_LARGEST, _HUGE = 1 << 14, 1 << 17
_ROOMS = (*(_LARGEST,) * 15, _HUGE)
# How many times as many steps a product may take.
_STEPS = 8
# Sizes on both sides of what kernels are tiled by, and primes: each less than twice the one before, so that a search
# that shrinks comes near the smallest that fails.
_SIZES = (
    *(1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 19, 23, 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 193, 255, 256),
    *(257, 383, 511, 512, 513, 769, 1023, 1024, 1025, 1537, 2047, 2048, 2049, 3001, 4095, 4096, 4097, 6007, 8191, 8193),
)
# One size in so many is 0, at the least.
_EMPTY = 30
# Numbers of dimensions behind a starred symbol, small ones first; empty tensors and numbers without a dimension come
# last, since they are no simpler to read.
_RANKS = (1, 2, 2, 3, 4, 0)
# One layout and one regime in so many are as plain as can be.
_PLAIN_LAYOUTS = ("contiguous",) * 5
_SEEDS = st.integers(0, (1 << 16) - 1)
_COIN = (False, True)
# Which of the floating tensors require grad: all of them, or a random part.
_ALL_GRADS = (True, True, True, True, False)
_REGIMES = tuple(REGIMES)
# Of a tensor with a record, which is drawn like the recorded one three times as often as in any other regime.
_RECORDED_REGIMES = (*REGIMES, RECORDED, RECORDED, RECORDED)
# Lengths of a list of tensors; a search shrinks to the first.
_MANY = (2, 1, 3)


@functools.lru_cache(1 << 14)
def _numbered(number: int, values: tuple[Any, ...], types: Any) -> st.SearchStrategy[tuple[int, Any]]:
    """One of some values. Hypothesis tries copies of what like strategies drew in one call, which for structure are
    wasted examples; with its number each is unlike the others. types are those of the values: 1, 1.0 and True are
    equal, and no call takes one for another."""
    return st.sampled_from([(number, value) for value in values])


def _types(value: Any) -> Any:
    return tuple(map(_types, value)) if isinstance(value, tuple) else type(value)


@functools.lru_cache(4096)
def _extents(count: int, most: int, anchor: int | None) -> tuple[int, ...]:
    """The first count sizes; around a recorded size (anchor), the sizes near it, up to most. One size in 30 is 0."""
    found = list(_SIZES[:count])
    if anchor is not None:
        around = {anchor - 1, anchor, anchor + 1, *(size for size in found if size <= max(2 * anchor, 64))}
        found = sorted(size for size in around if 0 < size <= most)
        found += [min(anchor, most)] * 3 if anchor else []
    return (*found * -(-_EMPTY // len(found)), 0)


def calls(templates: Sequence[Template]) -> st.SearchStrategy[DrawnCall]:
    """Calls around the templates, of one API."""

    @st.composite
    def drawn(draw: _Draw) -> DrawnCall:
        chosen = draw(_numbered(-1, tuple(range(len(templates))), int))[1] if len(templates) > 1 else 0
        return _Drawing(draw, templates[chosen]).call()

    return drawn()


class _Drawing:
    """One call that is being drawn."""

    def __init__(self, draw: _Draw, template: Template) -> None:
        self._draw = draw
        self._template = template
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._number = 0

    def _one_of(self, values: tuple[Any, ...]) -> Any:
        if len(values) == 1:
            return values[0]
        self._number += 1
        return self._draw(_numbered(self._number, values, _types(values)))[1]

    def _coin(self) -> bool:
        return bool(self._one_of(_COIN))

    def call(self) -> DrawnCall:
        template = self._template
        # First: hypothesis begins with calls in which only what is drawn first varies, and all else is as simple as can
        # be. So small calls of each regime come soon.
        self._regime = self._drawn_regime(any(slot.recorded is not None for slot in template.tensors.values()))
        self._alike = not self._coin()
        self._dtype = self._one_of(template.dtypes or ("",))
        self._largest = min(self._one_of(_ROOMS), template.elements or _HUGE)
        self._huge = self._largest > _LARGEST
        self._grads = self._one_of(_ALL_GRADS)
        self._sizes = self._drawn_sizes()
        values = {key: self._tensor(slot, key) for key, slot in template.tensors.items()}
        values |= {key: self._plain(slot) for key, slot in template.slots.items() if key not in values}
        given = {key: value for key, value in values.items() if value is not _OMITTED}
        # Last: else hypothesis would try many calls that differ only in the seed.
        seed = self._draw(_SEEDS)
        if template.arguments is None:
            args, kwargs = template.signatures.call(template.api, given)
        else:

            def filled(leaf: Any, _: str) -> Any:
                return values[leaf.name] if isinstance(leaf, Key) else leaf

            args, kwargs = (map_tree(tree, "", filled) for tree in template.arguments)
        return fitted(DrawnCall(template.api, tuple(args), kwargs, seed, template.signatures, template.limits))

    def _drawn_regime(self, recorded: bool) -> str:
        if self._template.elementwise and self._coin():
            return MIXED
        return str(self._one_of(_RECORDED_REGIMES if recorded else _REGIMES))

    def _drawn_sizes(self) -> dict[str, int | tuple[int, ...]]:
        found: dict[str, int | tuple[int, ...]] = {}
        # The last dimensions first: they are what kernels work along, and the others get what room is left.
        for symbol in reversed(self._template.symbols):
            anchor = self._template.anchors.get(symbol)
            if symbol in self._template.fixed:
                assert anchor is not None
                found[symbol] = anchor
            elif symbol.startswith("*"):
                found[symbol] = ()
                found[symbol] = self._star(symbol, found, anchor if isinstance(anchor, tuple) else None)
            else:
                choices, room = self._template.choices.get(symbol), self._room(symbol, found)
                near = anchor if isinstance(anchor, int) else None
                if choices is None:
                    found[symbol] = self._size(room, near, self._template.least.get(symbol, 0))
                else:
                    fitting = sorted({size for size in choices if size <= room} or {1})
                    found[symbol] = int(
                        self._one_of((*fitting, *([near] if near is not None and near <= room else [])))
                    )
        return found

    def _star(self, symbol: str, found: Mapping[str, Any], anchor: tuple[int, ...] | None) -> tuple[int, ...]:
        limits = self._template.choices.get(symbol)
        ranks = limits or (_RANKS if anchor is None else (*_RANKS, len(anchor), len(anchor), len(anchor)))
        extents: tuple[int, ...] = ()
        rank = self._one_of(tuple(ranks))
        for place in range(rank):
            near = anchor[-1 - place] if anchor is not None and place < len(anchor) else None
            sizes = {**found, symbol: extents}
            extents = (
                self._size(self._room(symbol, sizes), near, self._template.least.get(symbol, 0) if not place else 0),
                *extents,
            )
        return extents

    def _size(self, most: int, anchor: int | None, least: int = 0) -> int:
        count = bisect.bisect_right(_SIZES, most)
        # A draw from all magnitudes would rarely use the room of a large call.
        large = _SIZES[count // 2 : count] if self._huge and not anchor else ()
        size: int = self._one_of(large or _extents(count, most if anchor else 0, anchor))
        return size if size > least else least

    def _room(self, symbol: str, found: Mapping[str, Any]) -> int:
        """How large a symbol may be, so that no tensor whose shape has it is too large."""
        counts = [
            max(1, math.prod(max(extent, 1) for extent in slot.pattern.shape(found)))
            for slot in self._template.tensors.values()
            if symbol in slot.pattern.symbols
        ]
        # A product takes as many steps as the product of the sizes of all its symbols.
        steps = math.prod(max(1, math.prod(size) if isinstance(size, tuple) else size) for size in found.values())
        room: int = min(self._largest // max(counts), _STEPS * self._largest // steps)
        return max(1, room)

    def _tensor(self, slot: TensorSlot, key: str) -> Any:
        # Half of the optional arguments are left out; a record's arguments stay as they were.
        if slot.optional and self._template.arguments is None and self._coin():
            return _OMITTED
        if slot.many:
            tensors = [self._one(slot) for _ in range(self._one_of(_MANY))]
            self._shapes[key] = tensors[0].shape
            return tensors
        tensor = self._one(slot)
        self._shapes[key] = tensor.shape
        return tensor

    def _one(self, slot: TensorSlot) -> DrawnTensor:
        missing: dict[str, tuple[bool, ...]] = {}
        partners = [word[1:] for word in slot.pattern.words if word[0] == "~"]
        for name in partners:
            extents = self._sizes[f"*{name}"]
            assert isinstance(extents, tuple)
            if extents and self._coin():
                missing[name] = tuple(self._coin() for _ in range(len(extents) + 1))
        shape = slot.pattern.shape(self._sizes, missing)
        layout = self._one_of(_layouts(len(shape)))
        # An expanded tensor has equal numbers, which a sum rounds alike, and places that a call cannot write to.
        shared = self._template.few is not None or self._template.power > 1 or works_in_place(self._template.api)
        if layout == EXPANDED and shared:
            layout = "contiguous"
        dtype = slot.dtype or self._dtype
        if kind_of(dtype) not in ("float", "complex"):
            return DrawnTensor(shape, dtype, layout, "", False, slot.recorded)
        regime = self._regime
        if not self._alike:
            regime = self._drawn_regime(slot.recorded is not None)
        few = self._template.few
        if few is not None and regime in FEW_NUMBERS and math.prod(shape) > few:
            regime = "gaussian"
        if self._template.finite and regime in ("nan", "inf"):
            regime = "gaussian"
        grad = self._grads or self._coin()
        return DrawnTensor(shape, dtype, layout, regime, grad, slot.recorded)

    def _plain(self, slot: Any) -> Any:
        if isinstance(slot, Choice):
            value = self._one_of(slot.values)
            return _OMITTED if value is None and self._template.arguments is None else value
        if isinstance(slot, SizeOf):
            size = self._sizes[slot.symbol]
            return list(size) if slot.as_list and isinstance(size, tuple) else size
        assert isinstance(slot, DimOf)
        shape = self._shapes[slot.tensor] or (1,)
        rank = len(shape)
        if slot.kind == "dims" and self._coin():
            several = self._some(rank)
            return several or None
        if slot.kind == "some":
            return self._some(rank)
        least = max(self._template.least.values(), default=0)
        worth = [dim for dim in range(rank) if shape[dim] >= least] or list(range(rank))
        return self._one_of((*(dim - rank for dim in reversed(worth)), *worth))

    def _some(self, rank: int) -> list[int]:
        return [dim if self._coin() else dim - rank for dim in range(rank) if self._coin()]


# The value of an argument that is left out.
_OMITTED = object()


@functools.cache
def _layouts(rank: int) -> tuple[str, ...]:
    least = {"transposed": 2, "channels_last": 3, "contiguous": 0, "offset": 0}
    return (*_PLAIN_LAYOUTS, *(layout for layout in LAYOUTS if rank >= least.get(layout, 1)))
