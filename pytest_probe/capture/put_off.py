"""Statistics that are put off: of small tensors, which are counted together, and samples of large ones."""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.frequent_values import Places, fill_from_samples
from pytest_probe.capture.snapshot import Seen, Snapshots
from pytest_probe.capture.statistics import fill_together

SMALL_BYTES = 16_384  # bytes up to which a copy, and statistics of many together, cost less than statistics at once
TOGETHER = 131_072  # bytes of many tensors: what the cache holds
HUGE = 1 << 28  # bytes of a NumPy array from which on no values are looked at: it may be a file that is mapped

Groups = dict[Any, tuple[list[bytes], list[Seen]]]


class CountedSnapshots(Snapshots):
    """Snapshots with statistics. A copy of a tensor's memory waits with what the framework calls its dtype."""

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__("scalar" in config.kinds)
        self._counts = config.task in ("statistics", "tensor")
        self._sums = config.summary == "md5"
        self._small: deque[tuple[bytes, Any, Seen]] = deque()
        self._samples: deque[tuple[bytes, Any, Places, Seen]] = deque()

    def numbers(self, parts: Sequence[bytes], dtype: Any) -> np.ndarray:
        """The values of these parts of memory, as NumPy can sum them up: complex ones by their absolute values."""
        raise NotImplementedError

    def _settle_small(self) -> None:
        groups: Groups = defaultdict(lambda: ([], []))
        room = TOGETHER
        for _ in range(len(self._small)):
            data, dtype, seen = self._small.popleft()
            if self._sums:
                seen.crc = f"{zlib.crc32(data):08x}"
            parts, ones = groups[dtype]
            parts.append(data)
            ones.append(seen)
            room -= len(data)
            if room < 0:
                self._fill(groups)
                room = TOGETHER
        self._fill(groups)

    def _fill(self, groups: Groups) -> None:
        """Leaves no group."""
        while groups:
            dtype, (parts, seen) = groups.popitem()
            try:
                values = self.numbers(parts, dtype)
                width = sum(map(len, parts)) // values.size
                fill_together(values, [len(part) // width for part in parts], seen)
            except Exception as error:
                for one in seen:
                    one.failed = f"{type(error).__name__}: {error}"

    def _settle_samples(self) -> None:
        kinds: defaultdict[Any, list[tuple[bytes, Places, Seen]]] = defaultdict(list)
        for _ in range(len(self._samples)):
            data, dtype, where, seen = self._samples.popleft()
            kinds[dtype].append((data, where, seen))
        for dtype, ones in kinds.items():
            values = self.numbers([data for data, _, _ in ones], dtype)
            fill_from_samples(values, [where for _, where, _ in ones], [seen for *_, seen in ones])
