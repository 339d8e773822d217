"""What is seen of each element of a call that is cut, piece after piece: metrics, sums, and which places stay open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field

from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.large.cuts import Cut, Places
from pytest_probe.model.device_arrays import DeviceArray, FirstPass
from pytest_probe.model.verdict import Metric
from pytest_probe.numerics.dtypes import AnyArray, BoolArray, float_format, round_to, ulp_distance, widen
from pytest_probe.numerics.metrics import Description
from pytest_probe.standards.noise.unsampled_suspects import UnsampledSuspects

# Which elements of a piece, device's and reference's, the limits leave open.
Open = Callable[[AnyArray, AnyArray], BoolArray]
# What known 16-bit steps give of a part of the call, by name.
StepsOf = Callable[[BothSides], Mapping[str, AnyArray]]


class SeenOfTensor(Struct, frozen=True):
    """What a piece of a tensor shows: its metrics, where each is the largest of all so far, and its open places."""

    described: Description
    farthest: Mapping[str, int]
    open: AnyArray


class Seen(Struct, frozen=True):
    """What a piece of a case shows: what it adds to tensors that are not cut, and the others by name."""

    sums: Mapping[str, AnyArray]
    tensors: Mapping[str, SeenOfTensor]


class Looked:
    """What was seen of one tensor: its metrics, open places, and where it is farthest off."""

    def __init__(self, cut: Cut, name: str, test: Open, shape: tuple[int, ...], steps: StepsOf | None = None) -> None:
        self._name, self._steps = name, steps
        self._axis = 0 if cut.flat else cut.axis(name) or 0
        self._width = math.prod(shape[-1:]) if cut.flat else 1
        self._test = partial(_by_rows, test, self._width) if cut.flat else test
        suspects = test if isinstance(test, UnsampledSuspects) else None
        self._bounds = None if suspects is None else suspects.bounds
        # Does the test look at no more than bounds?
        self._is_settled = suspects is not None and suspects.farthest is None and steps is None
        self.described = Description()
        self._open: list[AnyArray] = []
        self._farthest: dict[str, int] = {}

    def look(self, start: int, actual: AnyArray, expected: AnyArray, part: Callable[[], BothSides]) -> SeenOfTensor:
        """At a piece that begins at a place. Threads may look at several at the same time."""
        if isinstance(expected, DeviceArray):
            form = None if actual.dtype.kind in "iubc" else float_format(actual.dtype)
            seen = None if form is None else expected.first_pass(actual, form, self._bounds)
            if seen is not None:
                return self._seen_there(seen, start, actual, expected, part)
        actual, expected = np.asarray(actual), np.asarray(expected)
        # Of integers none may differ, and those of the sample say all.
        described = Description() if actual.dtype.kind in "iub" else Description.of(actual, expected)
        farthest = {
            metric: start + self._place_of_largest(metric, actual, expected)
            for metric in described.beyond(self.described)
        }
        return SeenOfTensor(described, farthest, start + self._left(actual, expected, slice(None), part))

    def _seen_there(
        self, seen: FirstPass, start: int, actual: Any, expected: DeviceArray, part: Callable[[], BothSides]
    ) -> SeenOfTensor:
        """What a device saw of a piece; the places of which it leaves an element open come from there."""
        described = Description.seen(seen.largest, seen.sum_ulp, seen.differing, expected.size)
        at = {metric: np.unravel_index(place, expected.shape)[self._axis] for metric, place in seen.farthest.items()}
        farthest = {metric: start + int(at[metric]) for metric in described.beyond(self.described)}
        places = np.unique(np.unravel_index(seen.open, expected.shape)[self._axis])
        if places.size and not self._is_settled:
            # A flat tensor's test looks at each of its rows as a whole.
            rows = np.unique(places // self._width)[:, None] * self._width + np.arange(self._width)
            places = rows[rows < expected.shape[self._axis]]
            key = (*(slice(None),) * self._axis, places)
            places = places[self._left(np.asarray(actual[key]), np.asarray(expected[key]), places, part)]
        return SeenOfTensor(described, farthest, start + places)

    def _left(self, actual: AnyArray, expected: AnyArray, places: Places, part: Callable[[], BothSides]) -> AnyArray:
        """Which of some places of a piece the test leaves open."""
        left = self._test(actual, expected)
        if self._steps is not None and left.any():
            # What steps give bit for bit is not open.
            steps = self._steps(part()).get(self._name)
            key = (*(slice(None),) * self._axis, places)
            left &= True if steps is None else widen(round_to(steps[key], actual.dtype)) != widen(actual)
        others = tuple(axis for axis in range(actual.ndim) if axis != self._axis)
        return np.flatnonzero(left.any(axis=others))

    def take(self, seen: SeenOfTensor) -> None:
        # What it is farthest off is known here for all pieces before.
        for metric in seen.described.beyond(self.described):
            self._farthest[metric] = seen.farthest[metric]
        self.described.take(seen.described)
        self._open.append(seen.open)

    def _place_of_largest(self, metric: str, actual: AnyArray, expected: AnyArray) -> int:
        with np.errstate(all="ignore"):
            off = np.abs(widen(actual) - expected)
            if metric == "max_rel":
                off = np.where(expected == 0, 0.0, off / np.abs(expected))
            elif metric == "max_ulp":
                off = ulp_distance(actual, expected, actual.dtype)
        return int(np.unravel_index(int(np.argmax(off)), off.shape)[self._axis])

    def metrics(self) -> dict[str, Metric]:
        return dict(self.described.metrics()) if self.described.size else {}

    def places(self) -> AnyArray:
        return np.concatenate([np.empty(0, np.int64), *self._open])

    def farthest(self) -> tuple[int, ...]:
        return tuple(self._farthest.values())


class Scan(Struct):
    """All tensors of a case, piece after piece: what is cut, and sums of the others. most: open places from
    which on the scan is in vain. checked: the first piece that runs on the CPU as well, -1 for none."""

    looked: Mapping[str, Looked]
    most: int
    checked: int = -1
    sums: dict[str, AnyArray] = field(default_factory=dict)
    open: int = 0

    def take(self, seen: Seen) -> bool:
        """Add the next piece; False where too many places are open."""
        for name, share in seen.sums.items():
            self.sums[name] = self.sums[name] + share if name in self.sums else share
        for name, of_tensor in seen.tensors.items():
            self.looked[name].take(of_tensor)
        places = [of_tensor.open for of_tensor in seen.tensors.values()]
        self.open += distinct(places).size if places else 0
        return self.open <= self.most


def distinct(found: Sequence[AnyArray]) -> AnyArray:
    """The places in any of them, in order. Most are so already, which this sort is fast for."""
    places = np.concatenate(found)
    places.sort(kind="stable")
    return np.asarray(places[np.diff(places, prepend=-1) != 0])


def _by_rows(test: Open, width: int, actual: AnyArray, expected: AnyArray) -> BoolArray:
    """The test of a piece of a flat tensor in rows as long as the tensor's, wherever they begin: it may look at each as
    a whole."""
    rows = actual.size // width * width
    body = test(actual[:rows].reshape(-1, width), expected[:rows].reshape(-1, width)).reshape(-1)
    return body if rows == actual.size else np.concatenate([body, test(actual[rows:], expected[rows:])])
