"""Does a call write to all of its outputs, and touch no other memory?

Two calls show both at once, the second with another number in all memory that no result may depend on. Where their
results differ, further calls tell which memory it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.check.call_again import DifferingOutput, Results, kept
from pytest_probe.features.relations.table import Call, Found, Relation, left_out
from pytest_probe.frameworks.base import Zones
from pytest_probe.numerics.dtypes import is_inexact
from pytest_probe.user_errors import allowing_refusal

# What memory is full of, in turn. A maximum passes over NaN, and a sum over nothing.
NUMBERS = (math.nan, 2.0**100)
# Elements before and behind a tensor.
ZONE = 64


class _Observed(Struct):
    """A call in memory that is full of a number: unwritten tells whether its outputs' was, damaged where something was
    written outside of a tensor, without names the arguments that have no zones around them."""

    call: Call
    number: float
    results: Results = field(default_factory=dict)
    unwritten: bool = False
    zones: dict[str, Zones] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)

    def run(self, *, fresh: bool, guard: bool) -> _Observed:
        """fresh: what is not written yet is full of the number; guard: what lies around each tensor is."""

        def allocated(tensor: Any) -> Any:
            self.call.framework.fill(tensor, self.number if fresh else 0.0)
            self.unwritten |= fresh
            return self._placed(f"memory that the call allocates ({len(self.zones)})", tensor) if guard else tensor

        @contextmanager
        def inside() -> Iterator[None]:
            framework, device = self.call.framework, self.call.engines.device
            outputs = [value for value in self.call.like.values() if value.size]
            memory = framework.unwritten(device, outputs, self.number) if fresh else nullcontext(False)
            with memory as unwritten, framework.allocations(allocated):
                self.unwritten |= unwritten
                yield

        self.results = kept(self.call.results(placing=self._placed if guard else None, inside=inside))
        self.damaged = {name: words for name, zone in self.zones.items() if (words := zone.damage())}
        return self

    def _placed(self, name: str, tensor: Any) -> Any:
        found = None if self.call.row.whole_memory else self.call.framework.zones(tensor, ZONE)
        if found is None:
            self.without.append(name)
            return tensor
        found.fill(self.number)
        self.zones[name] = found
        return found.tensor


class _Memory:
    """The observations that both relations look at."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.first, self.other = (_Observed(call, number).run(fresh=True, guard=True) for number in NUMBERS)
        self.differ = any(True for _ in call.apart(self.other.results, self.first.results))

    @classmethod
    def of(cls, call: Call) -> _Memory:
        if call.memory is None:
            call.memory = cls(call)
        found: _Memory = call.memory
        return found

    def hangs_on(self, *, fresh: bool) -> DifferingOutput | None:
        """An output that depends on the number in one kind of memory: other bits with the other number, and twice the
        same ones with the same. What differs by chance is no sign of that."""
        if not self.differ:
            return None

        def results(number: float) -> Results:
            return _Observed(self._call, number).run(fresh=fresh, guard=not fresh).results

        first, other = map(results, NUMBERS)
        for apart in self._call.apart(other, first):
            pairs = ((results(number), before) for number, before in zip(NUMBERS, (first, other), strict=True))
            if not any(True for again, before in pairs for _ in self._call.apart(again, before)):
                return apart
        return None


class AllWritten(Relation):
    name = "all-written"

    def unfit(self, call: Call) -> str:
        own = call.backward or call.replay.actual.outputs.keys() - call.replay.actual.returned.keys()
        return "" if own else "the call returns nothing but its arguments"

    def find(self, call: Call) -> Found:
        if not any(value.size for value in call.like.values()):
            left_out("no output has an element")
        memory = _Memory.of(call)
        apart = memory.hangs_on(fresh=True)
        if apart is not None:
            call.leave_out(apart)
            return Found(f"not written: {apart.description} with what memory was full of", apart, 6)
        if not memory.other.unwritten:
            left_out("the device's allocator gives memory that nobody knows the content of")
        return Found(runs=2)


class Guard(Relation):
    name = "guard"

    def unfit(self, call: Call) -> str:
        return "the API may read all of the memory that its tensors are views of" if call.row.whole_memory else ""

    def find(self, call: Call) -> Found:
        memory = _Memory.of(call)
        apart = memory.hangs_on(fresh=False)
        if apart is not None:
            call.leave_out(apart)
        for name, words in {**memory.first.damaged, **memory.other.damaged}.items():
            return Found(f"{name}: written {words}", apart, 2)
        if apart is not None:
            return Found(f"{apart.description} with what lies outside of the arguments", apart, 6)
        if not memory.first.zones:
            left_out("no tensor of the call has memory that zones can be laid around")
        without = [name for name in memory.first.without if name in call.leaves]
        unasked = [f"no zones around {', '.join(without)}, whose elements share memory"] if without else []
        at_ends = _at_page_ends(call)
        return Found(
            runs=2 + at_ends, unasked="; ".join(unasked if at_ends else [*unasked, "the ends of pages were not asked"])
        )


def _at_page_ends(call: Call) -> int:
    """Make the call with each argument at the end of a page, behind which the process dies; the number of calls."""
    at_risk, count = call.at_risk, 0
    if at_risk is None:
        return 0
    for place in call.leaves:
        moved: list[Any] = []

        def placed(name: str, tensor: Any, place: str = place, moved: list[Any] = moved) -> Any:
            found = call.framework.at_page_end(tensor) if name == place else None
            moved += [] if found is None else [found]
            return tensor if found is None else found

        with at_risk(f"{Guard.name}: {place} at the end of a page"):
            call.results(placing=placed)
        count += bool(moved)
    return count


# Further calls of each kind.
TIMES = 5
# Elements before a tensor's first one.
_FAR = 3 * ZONE


class Again(Relation):
    name = "again"
    broken = "warning"

    def find(self, call: Call) -> Found:
        if call.row.nondeterministic:
            left_out("the framework documents it as non-deterministic")
        memory: dict[str, Any] = {}

        def first(name: str, tensor: Any) -> Any:
            # At another place of an allocation than any tensor before: a cache may know the usual ones.
            zones = None if call.row.whole_memory else call.framework.zones(tensor, _FAR)
            memory[name] = tensor if zones is None else zones.tensor
            return memory[name]

        def same(name: str, tensor: Any) -> Any:
            return call.framework.refilled(memory[name], tensor) if name in memory else tensor

        _ = call.base
        # A call may refuse the other numbers: the memory is known then, all the same.
        with allowing_refusal():
            # The numbers of each floating tensor in other places.
            others = dict(call.leaves)
            for name, leaf in others.items():
                if is_inexact(leaf.array.dtype):
                    array = np.roll(leaf.array, 1 + leaf.array.size // 2) * leaf.array.dtype.type(0.5)
                    others[name] = replace(leaf, array=array)
            call.results(others, placing=first)
        ways = (("on the memory that other numbers were in", same), ("on fresh memory", None))
        differing: list[tuple[str, DifferingOutput]] = []
        for words, placing in ways:
            for _ in range(TIMES):
                differing += [(words, each) for each in call.apart(call.results(placing=placing))][:1]
        if not differing:
            unasked = "" if memory or not call.leaves else "all on fresh memory"
            return Found(runs=2 * TIMES, unasked=unasked)
        for _, each in differing:
            call.leave_out(each)
        words = " and ".join(dict.fromkeys(words for words, _ in differing))
        apart = differing[0][1]
        return Found(
            f"{len(differing)} of {2 * TIMES} further calls differ, {words}: {apart.description}", apart, 2 * TIMES
        )
