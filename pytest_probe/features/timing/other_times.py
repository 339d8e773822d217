"""The time of a case compared with another run's: a benchmark's, or a baseline's, which knows its spread.

What looks slower is measured again: the median and the least must both be above the limit, four times within three
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.model.baseline import KeptCase, KeptTime
from pytest_probe.model.measurement import CaseMemory, CaseTime, TimeBeside, microseconds
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import SLOWER, Verdict
from pytest_probe.options import NAMED
from pytest_probe.reports.result_set import OtherResults


class OtherTimes(Struct, frozen=True):
    """Where times are compared. limit: above so many times the other one a case is slower, None where nothing
    fails."""

    limit: float | None
    others: Sequence[OtherResults] = ()

    def compare(self, time: CaseTime, identity: PortableId) -> CaseTime:
        """The time with the other one: of the benchmark, where it has the case, else of the baseline."""
        if not time.compares or time.median_us is None:
            return time
        # Cases of the same dtype, on the same device: another one takes another time.
        cases = [other.cases.get(str(identity)) for other in self.others if other.same_device]
        spread = next((case.time for case in cases if isinstance(case, KeptCase)), None)
        theirs = next((case.time for case in cases if isinstance(case, Result)), None)
        if theirs is not None and theirs.compares and theirs.median_us is not None:
            found = TimeBeside(
                "benchmark",
                theirs.median_us,
                _ratio(time.median_us, theirs.median_us),
                limit_of(self.limit, spread),
                theirs.least_us,
            )
        elif spread is not None and spread.low_us:
            limit = limit_of(self.limit, spread) if all(other.limits for other in self.others) else None
            found = TimeBeside("baseline", spread.low_us, _ratio(time.median_us, spread.low_us), limit)
        else:
            return time
        return replace(time, beside=found)

    def memory(self, memory: CaseMemory, identity: PortableId) -> CaseMemory:
        """The memory with the benchmark's peak."""
        for other in self.others:
            case = other.cases.get(str(identity))
            if isinstance(case, Result) and case.memory is not None:
                return replace(memory, benchmark_bytes=case.memory.peak_bytes)
        return memory


def limit_of(limit: float | None, spread: KeptTime | None) -> float | None:
    """The factor above which a case is slower. What runs of the same case differ by is known from few of them: the root
    of the limit comes on top."""
    if limit is None or spread is None:
        return limit
    return float(f"{max(limit, spread.spread * math.sqrt(limit)):.4g}")


def _ratio(now: float, other: float) -> float:
    return float(f"{now / other:.4g}")


def slower(verdict: Verdict) -> Verdict:
    """The verdict on a case that is slower than the limit allows: an error, unless it is one already."""
    time = verdict.time
    assert time is not None
    assert time.beside is not None
    beside = time.beside
    reason = (
        f"{beside.ratio:.3g} times the {beside.where}'s time: {microseconds(beside.median_us)} there, "
        f"{microseconds(time.median_us or 0.0)} here; the limit is {beside.limit:.3g} times"
    )
    if verdict.verdict == "error":
        return replace(verdict, notes=(*verdict.notes, f"{SLOWER}: {reason}"))
    return replace(verdict, verdict="error", kind=SLOWER, reason=reason)


def check_benchmark(folder: Path | None, others: Iterable[OtherResults]) -> None:
    """Raises SettingsError where a benchmark, which is in this folder, has no times."""
    for other in others:
        results = (case for case in other.cases.values() if isinstance(case, Result))
        timed = any(each.time is not None and each.time.median_us is not None for each in results)
        if other.kind == "benchmark" and not timed:
            wanted = "its results have no times; make it with --probe-mode=acc,time"
            raise SettingsError(NAMED["benchmark"].flag, str(folder), wanted)
