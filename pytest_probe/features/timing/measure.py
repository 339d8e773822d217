"""The time and the memory of a case, from the call that is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.check.both_sides import BothSides
from pytest_probe.check.engines import Engines
from pytest_probe.check.runner import CaseRunner
from pytest_probe.features.timing.blocks import Ceilings, Times, times
from pytest_probe.features.timing.subject import Subject, Work, alone, of_replay, work
from pytest_probe.frameworks.base import Measuring
from pytest_probe.model.case import Case
from pytest_probe.model.measurement import CaseMemory, CaseTime, Throughput, TimeNote, Warmth
from pytest_probe.model.run import Device, Leaf, on_device
from pytest_probe.numerics.dtypes import is_floating
from pytest_probe.system.machine import release_frames
from pytest_probe.user_errors import exception_line, first_line

# Sets of inputs that take turns at most: smaller inputs would lie in the cache in a program as well, where the call
# before has just made them.
SETS = 16
# Bytes of fresh copies that are ready at a time, for a call that writes to its arguments.
_READY = 1 << 27
UNCOUNTED = "nothing counts the memory of this device"


class TimeAndMemory:
    """Measures the cases of a run. budget: seconds for the time of each, None where no time is asked for; memory: is
    their memory asked for?"""

    def __init__(self, budget: float | None = None, *, memory: bool = False) -> None:
        self.budget, self.counts_memory = budget, memory
        self._ceilings: WeakKeyDictionary[Engines, Ceilings] = WeakKeyDictionary()

    def of_replay(self, case: Case, replay: BothSides, engines: Engines) -> CaseCall:
        """See check.outcome.Measuring."""
        return self._call(
            case, of_replay(case, replay, engines.framework, engines.device, engines.request.seed), engines
        )

    def alone(self, case: Case, runner: CaseRunner) -> CaseCall:
        """See check.outcome.Measuring."""
        return self._call(case, alone(case, runner, runner.engines.request.seed), runner.engines)

    def _call(self, case: Case, subject: Subject, engines: Engines) -> CaseCall:
        if engines not in self._ceilings:
            self._ceilings[engines] = Ceilings(engines.framework, engines.device)
        found = engines.framework, engines.device, self._ceilings[engines]
        return CaseCall(case.record.name, engines.request.seed, subject, *found, self)


class CaseCall(Struct, frozen=True):
    """The call of a case, and how it is measured. record is the record's name."""

    record: str
    seed: int
    subject: Subject
    framework: Measuring
    device: Device
    ceilings: Ceilings
    asked: TimeAndMemory

    @property
    def leaves(self) -> Mapping[str, Leaf]:
        return self.subject.leaves

    def time(self) -> CaseTime | None:
        """A call that raises when it is made again has a reason instead of times."""
        if self.asked.budget is None:
            return None
        subject, done = self.subject, work(self.subject)
        if done is not None:
            subject = subject.varied(self.record, self.seed)
        sets, warmth = input_sets(subject.input_bytes, self.framework.last_level_cache(self.device))
        most = max(1, _READY // max(subject.input_bytes, 1)) if subject.call.writes else math.inf
        try:
            with on_device(), self.framework.repeated(replace(subject.call, sets=sets)) as repeated:
                clock = self.framework.clock(self.device)
                found = times(clock, repeated.ready, repeated.empty, self.asked.budget, most)
        except Exception as error:  # a framework raises what it likes
            return CaseTime(reason=self._reason(error))
        lower, upper = found.quartiles
        note: TimeNote = "once" if found.once else "too short" if found.too_short else ""
        return CaseTime(
            _us(found.median),
            _us(lower),
            _us(upper),
            _us(found.least),
            _us(found.first),
            _us(found.empty),
            found.calls,
            clock.name,
            warmth,
            sets,
            note,
            input_shapes=tuple(tuple(map(int, leaf.array.shape)) for leaf in subject.leaves.values()),
            output_shapes=tuple(shape for shape, _ in subject.outputs.values()),
            throughput=None if done is None or note == "too short" else self._throughput(found, warmth, done),
        )

    def _throughput(self, found: Times, warmth: Warmth, done: Work) -> Throughput | None:
        if not found.median > 0:
            return None
        copied = self.ceilings.bytes_per_s(warmth)
        dtypes = {leaf.array.dtype.name for leaf in self.leaves.values() if is_floating(leaf.array.dtype)}
        product = self.ceilings.flops_per_s(next(iter(dtypes))) if done.product and len(dtypes) == 1 else None
        return Throughput(
            _giga(done.bytes / found.median),
            None if copied is None else _giga(copied),
            _giga(done.flops / found.median),
            None if product is None else _giga(product),
        )

    def memory(self) -> CaseMemory | None:
        """In a separate run, because counting takes time."""
        if not self.asked.counts_memory:
            return None
        subject = self.subject
        try:
            with on_device(), self.framework.repeated(subject.call) as repeated:
                first, second = repeated.ready(1), repeated.ready(1)
                # What a library keeps of its first call counts for no case.
                first[0]()
                use = self.framework.memory_use(self.device, second[0])
        except Exception as error:  # a framework raises what it likes
            return CaseMemory(input_bytes=subject.input_bytes, reason=self._reason(error))
        if use is None:
            return CaseMemory(input_bytes=subject.input_bytes, reason=UNCOUNTED)
        return CaseMemory(use.peak, use.growth, subject.input_bytes, source=use.source)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, MemoryError):
            release_frames(error)
            return f"memory ran out when the call was made again ({first_line(error)})"
        return f"{self.device.name} raised when the call was made again: {exception_line(error)}"


def input_sets(size: int, cache: int) -> tuple[int, Warmth]:
    """How many copies of inputs of so many bytes take turns, and whether they lie in the last cache when a call begins:
    as many as fill it twice; one where that would take more than SETS, or nobody knows the cache."""
    if not size or not cache or 2 * cache > SETS * size:
        return 1, "warm"
    return math.ceil(2 * cache / size), "cold"


def _us(seconds: float) -> float:
    """Microseconds, in five digits."""
    return float(f"{seconds * 1e6:.5g}")


def _giga(number: float) -> float:
    return float(f"{number / 1e9:.4g}")
