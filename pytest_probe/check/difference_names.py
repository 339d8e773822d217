"""What two results of equal inputs differ by, where that has a name: one side is as a run of the reference that rounds
at known places, or adds in a known order.

A side is as a run if nearly all of its elements have the run's bits, and far fewer those of the correctly rounded
result. Which places are rounded is searched, the one first that brings most elements to the side's bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain

import numpy as np
from msgspec import Struct

from pytest_probe.check import CaseOutcome, Checker
from pytest_probe.check.comparisons import comparisons
from pytest_probe.errors import ProbeError
from pytest_probe.model.comparison import NOWHERE, Assumption, Comparison
from pytest_probe.model.device_modes import behaviour
from pytest_probe.numerics.arrays import equal_bits
from pytest_probe.numerics.dtypes import AnyArray, alike, float_format, is_floating, round_to, widen
from pytest_probe.numerics.float32_sums import ORDERS

# Of the elements, what has the run's bits: the others are ties that float32 inside decides.
NEARLY_ALL = 0.95
# Of the elements that the correctly rounded result does not explain, what the run may leave.
LEFT = 0.25
# The fewest such elements that tell a way of rounding.
TOLD = 16
# Results inside a call that are tried, and how many of them that change nothing end the search.
PLACES, IDLE = 40, 8
# Roundings of one side; what each one explains at least of the elements that are left; and how many results are tried
# together, beginning with the rounding that explains most alone. Chosen; a wrong one explains 2 % by chance.
MOST, GAIN, HELPFUL = 3, 0.05, 12
# Elements of an output: results of that size are kept, one a place. What is larger is judged in pieces, mostly.
LARGEST = 1 << 18
# Seconds of CPU time that a run may take of which dozens are made, the fastest of three: a collection of garbage, an
# import or another thread takes as much once. What is slower is compared with single runs only.
DEAR = 0.2
# A side without a name of its own must be nearer to the correctly rounded result than to the other side's run. Chosen.
NEARER = 0.8
_NUMBERS = ("", "one rounding", "two roundings", "three roundings")


class _Manner(Struct, frozen=True):
    """How a side was computed: description is "" for the correctly rounded result; run is the reference run that the
    side is as, None under a device mode."""

    description: str
    run: AnyArray | None = None


class _Output(Struct, frozen=True):
    """An output of one side, and the device mode that its verdict names, "" for none. quick: may dozens of runs be
    made?"""

    comparison: Comparison
    mode: str
    quick: Callable[[], bool]

    def manner(self) -> _Manner | None:
        """None where it has no name."""
        expected, dtype = self.comparison.expected, self.comparison.actual.dtype
        if self.mode:
            return _Manner(f"as {behaviour(self.mode).description}")
        if not is_floating(dtype) or expected.dtype != np.float64 or expected.size > LARGEST:
            return None
        exact = self.misses(expected)
        if exact <= (1 - NEARLY_ALL) * expected.size:
            return _Manner("", expected)
        if exact < TOLD:
            return None
        enough = min((1 - NEARLY_ALL) * expected.size, LEFT * exact)
        runs: Iterator[AnyArray]
        evidence = self.comparison.evidence
        if float_format(dtype).precision < 24:
            places = self._searched(exact, enough) if self.quick() else None
            if places is not None:
                return _Manner(f"as by {_NUMBERS[len(places)]} more in {dtype.name}", self._rounded(places))
            words = f"as by roundings between its steps in {dtype.name}"
            several = (evidence.narrow_steps(1), evidence.composed_steps(), evidence.composed_steps("separate"))
            runs = chain.from_iterable(several)
        else:
            words = "as a sum in another order"
            runs = (run for run in map(evidence.added, ORDERS) if run is not None)
        return next((_Manner(words, run) for run in runs if self.misses(run) <= enough), None)

    def misses(self, run: AnyArray) -> int:
        """How many elements have other bits than a run, rounded to their dtype."""
        theirs, own = widen(round_to(run, self.comparison.actual.dtype)), widen(self.comparison.actual)
        return int(np.count_nonzero(~alike(theirs, own)))

    def _searched(self, exact: int, enough: float) -> frozenset[int] | None:
        """The places whose rounding gives the side's bits; None where none are found."""
        # What leaves as many changes nothing in this output.
        alone = {place: misses for place, misses in self._alone() if misses != exact}
        places, left, helpful = frozenset[int](), exact, sorted(alone, key=alone.__getitem__)[:HELPFUL]
        while left > enough and len(places) < min(MOST, len(helpful)):
            tried = [(self.misses(self._rounded(places | {each})), each) for each in helpful if each not in places]
            found, place = min(tried)
            if found > (1 - GAIN) * left:
                break
            places, left = places | {place}, found
        return places if left <= enough else None

    def _alone(self) -> Iterator[tuple[int, int]]:
        """Each place that changes something, with the misses where it alone is rounded."""
        idle = 0
        for place in range(PLACES):
            found = self.comparison.evidence.alternative(self.comparison, Assumption(rounded=frozenset((place,))))
            idle = idle + 1 if found is None else 0
            if idle == IDLE:
                return
            if found is not None:
                yield place, self.misses(found.expected)

    def _rounded(self, places: frozenset[int]) -> AnyArray:
        found = self.comparison.evidence.alternative(self.comparison, Assumption(rounded=places))
        return self.comparison.expected if found is None else found.expected


def _words(a: _Output, b: _Output) -> str:
    """What two sides differ by; "" where what one side has a name for is not what they differ by."""
    one, other = a.manner(), b.manner()
    if one is not None and other is not None and one.description == other.description:
        same = one.run is None or other.run is None or b.misses(one.run) <= b.misses(other.run)
        return "" if same or not one.description else f"{one.description} at another place"
    found = []
    for own, theirs, output, side in ((one, other, b, "A"), (other, one, a, "B")):
        if own is None or not own.description:
            continue
        # A side without a name may be as the same run but for something else.
        run, expected = own.run, output.comparison.expected
        if theirs is not None or run is None or output.misses(expected) < NEARER * output.misses(run):
            found.append(f"{own.description} ({side})")
    return ", ".join(found)


def differences(checker: Checker, a: CaseOutcome, b: CaseOutcome) -> dict[str, str]:
    """What the outputs of two checks of equal inputs differ by, which must hold their sides: by the names of outputs
    that differ, "" without a name. It costs dozens of runs of the reference."""
    try:
        with checker.engines_of(a.case.dump.framework).settled():
            first, second = (_outputs(each, checker.request.seed) for each in (a, b))
            names = [name for name in first if name in second and not _equal(first[name], second[name])]
            return {name: _words(first[name], second[name]) for name in names}
    except (ProbeError, MemoryError):
        return {}


def joined(found: Mapping[str, str]) -> str:
    """The names of all outputs in one line."""
    different = set(found.values())
    if len(different) == 1:
        return different.pop()
    return "; ".join(f"{name} {words}" for name, words in found.items() if words)


def _equal(a: _Output, b: _Output) -> bool:
    first, second = a.comparison.actual, b.comparison.actual
    return first.shape == second.shape and equal_bits(first, second) == 1.0


def _outputs(checked: CaseOutcome, seed: int) -> dict[str, _Output]:
    """By name. Of a large call those of a sample, which is the same on both sides."""
    if checked.compared is None:
        return {}
    case, modes = checked.case, {output.name: output.metrics.get("mode", "") for output in checked.verdict.outputs}
    made = (comparisons(side, case.direction, seed, by_class=case.pair is None) for side in checked.compared.sides)
    found = (each for each in chain.from_iterable(made) if isinstance(each, Comparison))
    listed = list(found)

    @cache
    def quick() -> bool:
        """Does the reference show its steps, in runs that take little time? Those after the first are made in any case,
        for the first places."""
        for places in (NOWHERE, *map(frozenset, ((0,), (1,)))):
            started = time.process_time()
            found = listed[0].evidence.alternative(listed[0], Assumption(rounded=places))
            if places == NOWHERE and found is None:
                return False
            if time.process_time() - started < DEAR:
                return True
        return False

    return {each.name: _Output(each, str(modes.get(each.name, "")), quick) for each in listed}
