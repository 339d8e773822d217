"""Large calls that can be cut: the reference runs piece by piece, each element is looked at once, and the standard
judges drawn places and all others that its limits for the drawn ones leave open.

Gradients of arguments that are not cut are the sums of what the pieces give, and are judged as any output is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import zip_longest

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides, Reference, reference_results, results
from pytest_probe.check.large.cuts import Cut, Places
from pytest_probe.check.large.scan import Looked, Open, Scan, Seen, StepsOf, distinct
from pytest_probe.check.reference_device import CHECKED, Change, check
from pytest_probe.check.structure import (
    OutputPairs,
    changed_and_not_returned,
    changed_on_device_alone,
    nearest_structure,
)
from pytest_probe.inputs.draws import RandomStreams
from pytest_probe.model.device_arrays import lying
from pytest_probe.model.dump import Direction
from pytest_probe.model.measurement import spending
from pytest_probe.model.run import Way
from pytest_probe.model.verdict import Metric, OutputVerdict
from pytest_probe.numerics.arrays import widened_dtype
from pytest_probe.numerics.dtypes import AnyArray
from pytest_probe.system.machine import in_order, usable_cores
from pytest_probe.user_errors import allowing_refusal

# Elements that are drawn: the error of an RMS of so many is 0.2 %, and a shift by a hundredth of a scale is five
# standard errors.
DRAWN = 2**18
# Of an output that is small compared with the arguments, where that is no more than a 16th of the places.
FEWEST = 2**12
# Of the places. A larger share costs as much as the whole.
MOST = 1 / 2
# Places that are judged for their few elements alone, or since an element is farthest off there.
FURTHER = 1 / 16
# Elements of the places on which is measured how many terms meet in an element.
TERMS = 2**14
# Elements of tensors that are not cut, in all pieces that run at the same time: 32 MiB of float64.
_UNCUT = 2**22
# Threads that start runs on a device: it makes one after the other, and has the next one while a thread waits for it.
THREADS_ELSEWHERE = 2
# Pieces that are begun for each thread: it has the next one while results are taken in their order.
_AHEAD = 2
_STREAMS = RandomStreams()


class Sampled(Struct, frozen=True):
    """Verdicts on places of tensors: which ones, and the whole call with its shapes. described: metrics of the whole,
    where each element was looked at. further: those of the places that were not drawn, but chosen for what they have;
    None where all were drawn."""

    whole: BothSides
    cut: Cut
    places: AnyArray
    shapes: Mapping[str, tuple[int, ...]]
    described: Mapping[str, Mapping[str, Metric]] = field(default_factory=dict)
    further: AnyArray | None = None

    def weights(self, name: str, shape: tuple[int, ...]) -> AnyArray | None:
        """How many elements of the whole each of a tensor's stands for; shape is that of the sample. Chosen elements
        are all there, and would else count too much in an RMS; the drawn ones stand for all others."""
        if self.further is None:
            return None
        name = name.removeprefix("grad.")
        start, stop = self.cut.spans.get(name, (0, self.cut.extent))
        places, further = (self.cut.chosen(name, found) for found in (self.places, self.further))
        alone = np.isin(places, further, assume_unique=True)
        drawn = places.size - int(np.count_nonzero(alone))
        stand_for = np.where(alone, 1.0, (stop - start - further.size) / max(drawn, 1))
        return np.broadcast_to(stand_for.reshape(-1, *(1,) * (len(shape) - self._axis(name) - 1)), shape)

    def of_whole(self, name: str, array: AnyArray) -> AnyArray:
        """The places of a tensor of the whole."""
        return np.ascontiguousarray(self.cut.at(name, array, self.places))

    def placed(self, output: OutputVerdict) -> OutputVerdict:
        """A verdict on the sample as one on the whole tensor."""
        name = output.name.removeprefix("grad.")
        shape = self.shapes[name]
        worst = tuple(replace(element, index=self._index(name, element.index)) for element in output.worst)
        metrics = {**output.metrics, **self.described.get(name, {}), "sampled": self.share}
        # Places and numbers of elements are those of the sample.
        chosen = "" if self.further is None else ", each that stood out among them"
        found, share = output.diagnosis, f"judged by {100 * self.share:.3g} % of its elements{chosen}"
        if found is not None and worst:
            at = f"element {list(worst[0].index)}" + (" among others" if found.wrong > 1 else "")
            output = replace(output, diagnosis=replace(found, where=at if found.where else ""))
        reason = f"{output.reason}; {share}" if output.reason else ""
        return replace(output, shape=shape, reason=reason, worst=worst, metrics=metrics)

    @property
    def share(self) -> float:
        return float(f"{self.places.size / self.cut.extent:.3g}")

    def of_few(self, replay: BothSides) -> BothSides:
        """The replay of as many places as have so many elements: an element depends on no other place."""
        largest = max(leaf.array.size for leaf in replay.reference.leaves.values()) // self.places.size
        count = math.ceil(TERMS / max(largest, 1))
        if self.cut.spans or 2 * count > self.places.size:
            return replay
        places = self.places[:count]
        part = _at(self.whole.reference, self.cut, places)
        part = replace(part, run=part.again(part.leaves, part.way, replay.reference.wanted))
        return replace(replay, reference=part, incoming=self.cut.incoming_at(self.whole.incoming, places))

    def _index(self, name: str, index: tuple[int, ...]) -> tuple[int, ...]:
        axis = self._axis(name)
        place = int(self.cut.chosen(name, self.places)[index[axis]])
        if self.cut.flat:
            return tuple(int(each) for each in np.unravel_index(place, self.shapes[name]))
        return (*index[:axis], place, *index[axis + 1 :])

    def _axis(self, name: str) -> int:
        return 0 if self.cut.flat else self.cut.axis(name) or 0


class Pieces(Struct, frozen=True):
    """A replay whose reference is cut, and what the source gave: outputs and changed arguments by name, or gradients by
    argument. key draws the places."""

    replay: BothSides
    cut: Cut
    direction: Direction
    actual: Mapping[str, AnyArray]
    key: str

    @classmethod
    def of(cls, replay: BothSides, direction: Direction, actual: Mapping[str, AnyArray], key: str) -> Pieces | None:
        """None where both sides differ in structure."""
        assert replay.reference.corner is not None
        found = cls(replay, replay.reference.corner.cut, direction, actual, key)
        return found if found._is_alike() else None

    def _is_alike(self) -> bool:
        reference = self.replay.reference
        if self.direction == "backward":
            leaves = {name: leaf.array for name, leaf in reference.leaves.items()}
            wanted = frozenset() if reference.wanted is None else reference.wanted.names
            return self.actual.keys() == wanted and all(
                array.shape == leaves[name].shape for name, array in self.actual.items()
            )
        changed = changed_and_not_returned(self.replay)
        corner = results(reference.run, changed)
        return (
            self.actual.keys() == corner.keys()
            and (self.replay.source.tells_changes or not changed)
            and not any(changed_on_device_alone(self.replay))
            and all(
                widened_dtype(array.dtype) == widened_dtype(corner[name].dtype)
                and self.cut.fits(name, array.shape, corner[name].shape)
                for name, array in self.actual.items()
            )
        )

    def drawn(self) -> OutputPairs | None:
        """Both sides at drawn places, in the reading that the source's results are nearest to; None where the reference
        does not give them."""
        generator = _STREAMS.at(f"places\0{self.key}\0{self.direction}")
        if not self.cut.spans:
            # As many places as have the elements that shall be drawn.
            extent = self.cut.extent
            by_largest = math.ceil(DRAWN * extent / max(array.size for array in self._arrays.values()))
            smallest = min((self.actual[name].size for name in self.names), default=1)
            count = max(1, by_largest, min(math.ceil(FEWEST * extent / smallest), int(FURTHER * extent)))
            return self._sides(distinct([generator.integers(extent, size=count)]))
        # Each tensor of a list is judged by itself.
        found = []
        for start, stop in sorted(set(self.cut.spans.values())):
            count = max(FEWEST, DRAWN * (stop - start) // self.cut.extent)
            whole = stop - start <= count
            found.append(np.arange(start, stop) if whole else generator.integers(start, stop, size=count))
        return self._sides(distinct(found))

    @property
    def _arrays(self) -> dict[str, AnyArray]:
        return {**{name: leaf.array for name, leaf in self.replay.reference.leaves.items()}, **self.actual}

    def _sides(
        self,
        places: AnyArray,
        described: Mapping[str, Mapping[str, Metric]] | None = None,
        further: AnyArray | None = None,
    ) -> OutputPairs | None:
        shapes = {name: self.actual[name].shape for name in self.names}
        sample = Sampled(self.replay, self.cut, places, shapes, described or {}, further)
        actual = {name: sample.of_whole(name, self.actual[name]) for name in self.names}
        prefix = "grad." if self.direction == "backward" else ""
        found = []
        with allowing_refusal():
            for reading in self._readings(places):
                with spending("reference"):
                    expected = reference_results(reading, self.direction)
                own, theirs = ({f"{prefix}{name}": side[name] for name in actual} for side in (actual, expected))
                found.append(OutputPairs(reading, own, theirs, (), sample))
            return replace(nearest_structure(found), other_reading=None)
        return None

    @property
    def names(self) -> list[str]:
        """Of the tensors that are cut."""
        return [name for name in self.actual if self.cut.axis(name) is not None]

    def _readings(self, places: AnyArray) -> Iterator[BothSides]:
        incoming = self.cut.incoming_at(self.replay.incoming, places)
        for reading in self.replay.readings():
            part = _at(reading.reference, self.cut, places)
            wanted = part.wanted if self.direction == "backward" else None
            with spending("reference"):
                part = replace(part, run=part.again(part.leaves, part.way, wanted))
            yield replace(reading, reference=part, rounded=None, incoming=incoming)

    def in_reading(self, sides: OutputPairs) -> Pieces:
        """In the reading that a sample was taken in."""
        reading = next(
            each
            for each in self.replay.readings()
            if each.reference.candidate.reading == sides.replay.reference.candidate.reading
        )
        return replace(self, replay=replace(reading, rounded=None))

    def judged_places(
        self, drawn: OutputPairs, tests: Mapping[str, Open], steps: Mapping[str, StepsOf]
    ) -> tuple[OutputPairs, ...] | None:
        """Both sides at the drawn places and wherever a test leaves an element open, then the sums of all pieces. None
        where so much is open that the whole must tell. tests are those of the tensors that are cut, by name; what steps
        give bit for bit is not open."""
        looked = {
            name: Looked(self.cut, name, tests[name], self.actual[name].shape, steps.get(name)) for name in self.names
        }
        windows = list(self.cut.windows(self._arrays))
        scan = Scan(looked, int(MOST * self.cut.extent))
        if self.replay.reference.way.place != "cpu":
            scan.checked = int(_STREAMS.at(f"checked\0{self.key}").integers(min(CHECKED, len(windows))))
        with spending("reference"), self._threads() as pool:
            found = in_order(pool, _AHEAD * self._cores, partial(self._seen, scan), enumerate(windows))
            through = all(seen is not None and scan.take(seen) for seen in found)
        # Many places are open, or the reference does not give all.
        if not through or self.actual.keys() != scan.sums.keys() | scan.looked.keys():
            return None
        sums = (self._sums(scan.sums),) if scan.sums else ()
        if not self.names:
            return sums
        assert isinstance(drawn.sample, Sampled)
        # Where an element is farthest off, by the most telling metric first, as far as there are enough other places.
        farthest = zip_longest(*(looked.farthest() for looked in scan.looked.values()))
        chosen = dict.fromkeys(place for each in farthest for place in each if place is not None)
        few = np.fromiter(chosen, np.int64)[: int(FURTHER * self.cut.extent)]
        further = distinct([few, *(looked.places() for looked in scan.looked.values())])
        places = distinct([drawn.sample.places, further])
        described = {name: looked.metrics() for name, looked in scan.looked.items()}
        sides = self._sides(places, described, further)
        return None if sides is None else (sides, *sums)

    def _threads(self) -> AbstractContextManager[Executor | None]:
        """Those in which pieces run; None for one after another, as where a user's function may not be made for
        threads."""
        reference = self.replay.reference
        if self._cores == 1 or not reference.is_own:
            return nullcontext()
        return reference.framework.threads(self._cores, reference.way)

    @property
    def _cores(self) -> int:
        """So many pieces may run at the same time: each has all tensors that are not cut."""
        uncut = sum(array.size for name, array in self.actual.items() if self.cut.axis(name) is None)
        elsewhere = self.replay.reference.way.place != "cpu"
        threads = min(usable_cores(), THREADS_ELSEWHERE) if elsewhere else usable_cores()
        return max(1, min(threads, _UNCUT // max(uncut, 1)))

    def _seen(self, scan: Scan, piece: tuple[int, slice]) -> Seen | None:
        """What is seen in a piece, in any thread; None where the reference refuses, or does not give all."""
        (number, window), reference = piece, self.replay.reference
        elsewhere = reference.way.place != "cpu"
        found = self._piece(window, replace(reference.way, stays=elsewhere))
        if found is None:
            return None
        # In arguments that are not cut a piece must leave what the corner leaves there: a flag of overflow depends on
        # all elements, and is no sum of what pieces give.
        whole = [name for name in reference.changed if name in found and self.cut.axis(name) is None]
        if not all(np.array_equal(found[name], reference.run.after(name)) for name in whole):
            return None
        if number % CHECKED == scan.checked:
            on_cpu = replace(reference.way, place="cpu")
            api = reference.candidate.name
            check(reference.way, api, found, lambda change: self._piece(window, on_cpu, change) or {})
        actual = {name: self.cut.at(name, self.actual[name], window) for name in self.names}
        # A changed argument that is returned as well counts once, as an output.
        expected = {name: array for name, array in found.items() if name in self.actual}

        def part() -> BothSides:
            """The replay of the piece alone, whose reference has not run."""
            incoming = self.cut.incoming_at(self.replay.incoming, window)
            return replace(self.replay, reference=_at(reference, self.cut, window), incoming=incoming)

        if not scan.looked.keys() <= expected.keys():
            return None
        sums: dict[str, AnyArray] = {}
        self.cut.add(sums, expected, window)
        tensors = {
            name: looked.look(max(window.start, self.cut.first(name)), actual[name], expected[name], part)
            for name, looked in scan.looked.items()
            if actual[name].size
        }
        return Seen(sums, tensors)

    def _piece(self, window: slice, way: Way, change: Change | None = None) -> Mapping[str, AnyArray] | None:
        """What the reference gives there, as it lies, on changed inputs if they shall be; None where it refuses, as it
        may in full as well."""
        reference = self.replay.reference
        leaves = self.cut.leaves_at(reference.leaves_there if way.stays else reference.leaves, window)
        incoming = self.cut.incoming_at(self.replay.incoming, window)
        if change is not None:
            leaves = {name: replace(leaf, array=change(name, leaf.array)) for name, leaf in leaves.items()}
            incoming = {name: change(name, array) for name, array in incoming.items()}
        with allowing_refusal():
            if self.direction == "forward":
                return lying(results(reference.again(leaves, way, None), reference.changed))
            run = reference.again(leaves, way, reference.wanted)
            return lying(reference.framework.gradients(run, incoming))
        return None

    def _sums(self, sums: Mapping[str, AnyArray]) -> OutputPairs:
        """What each piece adds to; further runs are made of pieces as well."""
        replay, prefix = self.replay, ""
        if self.direction == "backward":
            reference, prefix = replay.reference, "grad."
            assert reference.wanted is not None
            wanted = replace(reference.wanted, names=frozenset(sums))
            replay = replace(replay, reference=replace(reference, wanted=wanted))
        actual = {f"{prefix}{name}": np.asarray(self.actual[name]) for name in sums}
        expected = {f"{prefix}{name}": np.asarray(array) for name, array in sums.items()}
        return OutputPairs(replay, actual, expected, ())


def _at(reference: Reference, cut: Cut, places: Places) -> Reference:
    """The reference of some places alone, with the run of its corner: on the CPU, which is asked of what is judged, and
    has its inputs."""
    way = replace(reference.way, place="cpu")
    return reference.with_leaves(cut.leaves_at(reference.leaves, places), corner=None, cached=None, way=way)
