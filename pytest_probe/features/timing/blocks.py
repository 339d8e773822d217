"""How long a call takes, from blocks of calls, and what a device reaches at best: in a copy, and in a product.

docs/performance.md has what was measured: over five processes the largest median of blocks is 1.0 to 1.2 times the
smallest, where the mean varies by 1.8 and the 99th percentile by 40 times.

Frameworks give a clock, and a call that can be made again on tensors that stay on the device. All else is arithmetic on
clock readings, so tests use a clock of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct

from pytest_probe.model import measurement
from pytest_probe.model.measurement import Clock, Warmth
from pytest_probe.model.run import Arguments, Device, Leaf, MeasuredCall, Way
from pytest_probe.numerics.dtypes import round_to
from pytest_probe.system.process import paused_gc

_Calls: TypeAlias = Sequence[Callable[[], object]]
# From a number: so many calls, ready to be made.
_Ready: TypeAlias = Callable[[int], _Calls]

# The least calls and seconds of the warm-up, which is not measured.
WARM_UP_CALLS, WARM_UP_SECONDS = 3, 0.02
# Blocks at least, whatever the budget, and of empty calls.
FEWEST, _EMPTY_BLOCKS = 3, 16
# A time below so many empty calls says more about the harness.
_EMPTY_CALLS = 2.0
# Seconds of each measurement.
_BUDGET = 0.05
# Bytes that are copied, of the last cache's: what lies in it, and what does not; and at least, for an unknown cache.
_COPIED: Mapping[Warmth, float] = {"warm": 1 / 8, "cold": 2.0}
_LEAST_COPIED: Mapping[Warmth, int] = {"warm": 1 << 20, "cold": 1 << 26}
# Rows of the matrices: from the least, twice as many each time, until a product takes so many seconds.
_LEAST_ROWS, _MOST_ROWS, _LONG_ENOUGH = 512, 8192, 1e-3


class Times(Struct, frozen=True):
    """Seconds of a call by block, without what an empty call takes; first is the time of the first call, calls counts
    all.

    once: a call takes longer than the budget, and the one block is the second call. too_short: an empty call takes more
    than half as long.
    """

    first: float
    blocks: tuple[float, ...]
    empty: float
    calls: int
    too_short: bool = False
    once: bool = False

    @property
    def median(self) -> float:
        return median(self.blocks)

    @property
    def least(self) -> float:
        return min(self.blocks)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.blocks) < 2:
            return self.median, self.median
        lower, _, upper = quantiles(self.blocks, n=4, method="inclusive")
        return lower, upper


def times(device: Clock, ready: _Ready, empty: _Ready, budget: float, most: float = math.inf) -> Times:
    """The times of a call within so many seconds of the host, warm-up included. ready gives calls, empty gives calls
    of a function that does nothing; most is how many calls may be ready at a time. Raises what a call raises."""
    began = measurement.now()
    with paused_gc():
        first = _seconds(device, ready(1))
        # What a library loads at its first call is no part of the next one.
        if first > budget and (second := _seconds(device, ready(1))) > budget:
            return Times(first, (second,), 0.0, 2, once=True)
        # The least seconds of a call in the warm-up, whose blocks grow until they are long enough.
        started, warmed_up, size, one = measurement.now(), 0, 1, first
        while warmed_up < WARM_UP_CALLS or measurement.now() - started < WARM_UP_SECONDS:
            one = min(one, _seconds(device, ready(size)) / size)
            warmed_up += size
            size = min(2 * size, _size(device, one, most))
        size = _size(device, one, most)
        nothing = median(_seconds(device, empty(size)) / size for _ in range(_EMPTY_BLOCKS))
        # Marks are read at the end, so that nothing waits for the device in between; what it was asked for by then
        # takes no longer than what is left.
        left = max(began + budget - measurement.now(), 0.0)
        planned = math.ceil(left / (size * one)) if one > 0 else FEWEST
        marks: list[tuple[Any, Any]] = []
        while len(marks) < FEWEST or (len(marks) < planned and measurement.now() < began + budget):
            marks.append(_marks(device, ready(size)))
        blocks = [device.seconds(*pair) / size for pair in marks]
    raw = median(blocks)
    net = tuple(max(0.0, block - nothing) for block in blocks)
    return Times(first, net, nothing, 1 + warmed_up + size * len(blocks), raw < _EMPTY_CALLS * nothing)


def _seconds(device: Clock, calls: _Calls) -> float:
    return device.seconds(*_marks(device, calls))


def _marks(device: Clock, calls: _Calls) -> tuple[Any, Any]:
    """The clock's marks around a block."""
    start = device.mark()
    for call in calls:
        call()
    return start, device.mark()


def _size(device: Clock, one: float, most: float) -> int:
    """Calls in a block."""
    wanted = device.block / one if one > 0 else math.inf
    return int(max(1, min(math.ceil(min(wanted, 1e6)), most)))


if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Measuring


class Ceilings:
    """The ceilings of one device. Each is measured when it is first asked for."""

    def __init__(self, framework: Measuring, device: Device) -> None:
        self._framework = framework
        self._device = device
        self._known: dict[str, float | None] = {}

    def bytes_per_s(self, warmth: Warmth) -> float | None:
        """A copy reads and writes; None where the device does not copy."""
        if warmth not in self._known:
            cache = self._framework.last_level_cache(self._device)
            size = max(int(_COPIED[warmth] * cache), _LEAST_COPIED[warmth])
            copy, _ = self._framework.yardsticks()
            seconds = self._seconds(copy, np.ones(size // 4, np.float32), np.ones(size // 4, np.float32))
            self._known[warmth] = 2 * size / seconds if seconds else None
        return self._known[warmth]

    def flops_per_s(self, dtype: str) -> float | None:
        """The device's speed in products of a dtype; None where it has no product of this dtype."""
        if dtype in self._known:
            return self._known[dtype]
        _, product = self._framework.yardsticks()
        rows, found = _LEAST_ROWS, None
        while rows <= _MOST_ROWS:
            drawn = np.random.default_rng(0).standard_normal((rows, rows), np.float32)
            matrix = round_to(drawn, dtype).astype(np.dtype(dtype))
            seconds = self._seconds(product, matrix, matrix)
            if not seconds:
                break
            found = 2 * rows**3 / seconds
            if seconds >= _LONG_ENOUGH:
                break
            rows *= 2
        self._known[dtype] = found
        return found

    def _seconds(self, function: Callable[..., Any], *arrays: np.ndarray) -> float | None:
        arguments = Arguments(tuple(map(Leaf, arrays)), {}, None)
        try:
            with self._framework.repeated(MeasuredCall(function, arguments, Way(device=self._device))) as repeated:
                clock = self._framework.clock(self._device)
                return times(clock, repeated.ready, repeated.empty, _BUDGET).least
        except Exception:  # a device of a project's own raises what it likes
            return None
