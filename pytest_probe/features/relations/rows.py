"""Does a row give what it gives in other batches?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.call_again import DifferingOutput, Results, kept, outputs_of
from pytest_probe.check.large.cuts import Cut, Places
from pytest_probe.errors import DeviceRaised, Unsupported
from pytest_probe.features.relations.table import Call, Found, Relation, left_out, row_axes
from pytest_probe.model.run import with_leaves
from pytest_probe.numerics.arrays import equal_in_float64
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.user_errors import allowing_refusal, first_line

_SEED = 46


def _batches(extent: int) -> Iterator[tuple[str, Places]]:
    """Single rows; a batch of copies of one; chunks."""
    middle, third = extent // 2, max(1, extent // 3)
    for place in dict.fromkeys((0, middle, extent - 1)):
        yield f"row {place} alone", slice(place, place + 1)
    yield f"row {middle} among copies of itself", np.full(extent, middle)
    for start, stop in ((0, third), (third, extent)):
        if 1 < stop - start < extent:
            yield f"rows {start} to {stop - 1} alone", slice(start, stop)


def _orders(extent: int) -> Iterator[tuple[str, Places]]:
    yield "rows in reverse", np.arange(extent)[::-1]
    if extent > 2:
        yield "rows in another order", np.random.default_rng(_SEED).permutation(extent)


class Rows(Relation):
    """What `batch` and `order` have in common: a call on chosen rows gives those rows of the whole. trials gives, for
    so many rows, the places of the rows that make another batch, each with its words."""

    def __init__(self, name: str, trials: Callable[[int], Iterator[tuple[str, Places]]]) -> None:
        self.name, self.broken = name, "warning"
        self._trials = trials

    def unfit(self, call: Call) -> str:
        return "" if call.row.batch else "no dimension is known to be rows; say which: batch={'x': 0}"

    def find(self, call: Call) -> Found:
        found = Found()
        for cut in _cuts(call):
            try:
                whole = _Whole.of(call, cut)
            except (Unsupported, DeviceRaised) as error:
                found = replace(found, unasked=found.unasked or first_line(error))
                continue
            for batch, places in self._trials(cut.extent):
                apart = whole.apart(places)
                found = replace(found, runs=found.runs + 1)
                if apart is not None:
                    if not whole.is_row(places):
                        left_out("float64 gives other numbers for these rows as well: they know of one another")
                    words = f"dimension {cut.leaves[next(iter(cut.leaves))]}: {batch}: {apart.description}"
                    return replace(found, broken=words, apart=apart)
        return found if found.runs else left_out(found.unasked)


class _Whole(Struct, frozen=True):
    """The call on all rows, in memory in their order, and how its outputs are cut."""

    call: Call
    cut: Cut
    results: Results
    incoming: Mapping[str, AnyArray]

    @classmethod
    def of(cls, call: Call, cut: Cut) -> _Whole:
        """Raises Unsupported where no output has the rows."""
        leaves = cut.leaves_at(call.leaves, slice(0, cut.extent))
        one = with_leaves(call.arguments, cut.leaves_at(call.leaves, slice(0, 1)))
        single = outputs_of(call.run(one, wanted=call.wanted))
        forward = outputs_of(call.run(with_leaves(call.arguments, leaves), wanted=call.wanted))
        # The axis of each output that has one row, or all.
        axes = {}
        for name, value in forward.items():
            shape = single[name].shape if name in single else ()
            pairs = enumerate(zip(shape, value.shape, strict=False))
            rows = [axis for axis, pair in pairs if pair == (1, cut.extent)]
            if len(shape) == value.ndim and len(rows) == 1 and value.size == single[name].size * cut.extent:
                axes[name] = rows[0]
        if not axes:
            left_out("no output has the rows of its arguments")
        cut = replace(cut, outputs=axes)
        if not call.backward:
            return cls(call, cut, kept({name: forward[name] for name in cut.outputs}), {})
        seeds = call.replay.incoming
        if not seeds.keys() <= axes.keys():
            left_out("an output that has an incoming gradient has no rows")
        cut = replace(cut, outputs=axes | {f"grad.{name}": axis for name, axis in cut.leaves.items()})
        found = {name: value for name, value in call.results(leaves).items() if name in cut.outputs}
        if not found:
            left_out("no gradient has rows")
        return cls(call, cut, kept(found), seeds)

    def apart(self, places: Places) -> DifferingOutput | None:
        """What a call on these rows gives else."""
        found = self.call.results(self.cut.leaves_at(self.call.leaves, places), self._incoming(places))
        wanted = {name: self.cut.at(name, value, places) for name, value in self.results.items()}
        return next(self.call.apart(found, wanted), None)

    def is_row(self, places: Places) -> bool:
        """Does float64 give the same for these rows? A table may be wrong of a call."""
        with allowing_refusal():
            whole = self.call.expected(self.call.leaves, self.incoming or None)
            part = self.call.expected(self.cut.leaves_at(self.call.leaves, places), self._incoming(places))
            return all(
                part[name].shape == self.cut.at(name, whole[name], places).shape
                and equal_in_float64(part[name], self.cut.at(name, whole[name], places))
                for name in self.results
            )
        return False

    def _incoming(self, places: Places) -> Mapping[str, AnyArray] | None:
        return self.cut.incoming_at(self.incoming, places) if self.incoming else None


def _cuts(call: Call) -> list[Cut]:
    """The outermost and the innermost dimension that has several rows. Raises Unsupported without one."""
    axes = {}
    for name, dimensions in call.row.batch.items():
        place = call.paths.get(name, name)
        if place not in call.leaves and call.case.pair is not None:
            left_out(f"the function has no tensor argument {name}")
        if place in call.leaves:
            try:
                axes[place] = row_axes(dimensions, call.leaves[place], call.argument)
            except LookupError as error:
                left_out(f"{name}: {error.args[0]}")
    cuts = [cut for count in range(max(map(len, axes.values()), default=0), 0, -1) for cut in _cut(call, axes, count)]
    if not cuts:
        left_out("no argument has a dimension with two rows")
    return cuts if len(cuts) < 2 else [cuts[0], cuts[-1]]


def _cut(call: Call, axes: Mapping[str, tuple[int, ...]], count: int) -> Iterator[Cut]:
    """The dimension that is so many from the last of the rows, where the arguments agree on it."""
    own = {name: rows[-count] for name, rows in axes.items() if len(rows) >= count}
    extents = {name: call.leaves[name].array.shape[axis] for name, axis in own.items()}
    extent = max(extents.values(), default=0)
    if extent > 1 and set(extents.values()) <= {1, extent}:
        yield Cut(extent, {name: axis for name, axis in own.items() if extents[name] == extent}, {})


BATCH = Rows("batch", _batches)
ORDER = Rows("order", _orders)
