"""What a device reaches at best, measured once a run: in a copy, and in a product of two matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_probe.features.timing.blocks import times
from pytest_probe.model.arguments import Arguments, Leaf
from pytest_probe.model.measurement import Warmth
from pytest_probe.model.run import Device, MeasuredCall, Way
from pytest_probe.numerics.dtypes import round_to

if TYPE_CHECKING:
    from pytest_probe.frameworks.base import Measuring

# Seconds of each measurement.
BUDGET = 0.05
# Bytes that are copied, of the last cache's: what lies in it, and what does not; and at least, for an unknown cache.
COPIED: Mapping[Warmth, float] = {"warm": 1 / 8, "cold": 2.0}
LEAST_COPIED: Mapping[Warmth, int] = {"warm": 1 << 20, "cold": 1 << 26}
# Rows of the matrices: from the least, twice as many each time, until a product takes so many seconds.
LEAST_ROWS, MOST_ROWS, LONG_ENOUGH = 512, 8192, 1e-3


class Ceilings:
    """Those of one device. Each is measured when it is first asked for."""

    def __init__(self, framework: Measuring, device: Device) -> None:
        self._framework = framework
        self._device = device
        self.bytes_per_s: Callable[[Warmth], float | None] = cache(self._bytes_per_s)
        self.flops_per_s: Callable[[str], float | None] = cache(self._flops_per_s)

    def _bytes_per_s(self, warmth: Warmth) -> float | None:
        """A copy reads and writes; None where the device does not copy."""
        cache = self._framework.last_level_cache(self._device)
        size = max(int(COPIED[warmth] * cache), LEAST_COPIED[warmth])
        copy, _ = self._framework.yardsticks()
        seconds = self._seconds(copy, np.ones(size // 4, np.float32), np.ones(size // 4, np.float32))
        return 2 * size / seconds if seconds else None

    def _flops_per_s(self, dtype: str) -> float | None:
        """None where the device has no product of this dtype."""
        _, product = self._framework.yardsticks()
        rows, found = LEAST_ROWS, None
        while rows <= MOST_ROWS:
            drawn = np.random.default_rng(0).standard_normal((rows, rows), np.float32)
            matrix = round_to(drawn, dtype).astype(np.dtype(dtype))
            seconds = self._seconds(product, matrix, matrix)
            if not seconds:
                break
            found = 2 * rows**3 / seconds
            if seconds >= LONG_ENOUGH:
                break
            rows *= 2
        return found

    def _seconds(self, function: Callable[..., Any], *arrays: np.ndarray) -> float | None:
        arguments = Arguments(tuple(map(Leaf, arrays)), {}, None)
        try:
            with self._framework.repeated(MeasuredCall(function, arguments, Way(device=self._device))) as repeated:
                clock = self._framework.clock(self._device)
                return times(clock, repeated.ready, repeated.empty, BUDGET).least
        except Exception:  # a device of a project's own raises what it likes
            return None
