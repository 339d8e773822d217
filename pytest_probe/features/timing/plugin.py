"""--probe-mode=time,mem: each case is measured, and compared with another run where there is one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.features.timing.measure import TimeAndMemory
from pytest_probe.model import measurement
from pytest_probe.model.baseline import KeptCase, KeptTime
from pytest_probe.model.measurement import CaseMemory, CaseTime, TimeBeside, microseconds
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import SLOWER, Verdict
from pytest_probe.options import NAMED
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.item_verdict import ItemVerdict
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import is_controller
from pytest_probe.reports.result_set import OtherResults
from pytest_probe.settings import RawOptions, Settings


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


# Seconds before each further measurement of a case that looks slower: what disturbs one lasts for seconds, too. And how
# long a run waits for that in all, since of a device that is slower throughout every case looks so.
WAITS, PATIENCE = (0.2, 0.8, 2.0), 30.0


def check_limit(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError where there are no times to limit, or none to compare with. A limit in an ini file is for
    the runs that measure times."""
    limit = options["time-limit"]
    if not settings.times and not limit.from_ini:
        raise limit.wrong("no times are measured: add --probe-mode=acc,time")
    if settings.times and settings.benchmark is None and settings.baseline is None:
        raise limit.wrong("it needs times to compare with: add --probe-benchmark=DIR or --probe-baseline=FILE")


class Timing(Feature):
    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._patience = PATIENCE

    @property
    def request(self) -> Mapping[str, TimeAndMemory]:
        settings = self.probe.settings
        budget = settings.time_budget if settings.times else None
        return {"measuring": TimeAndMemory(budget, memory=settings.counts_memory)}

    def prepare(self) -> None:
        """Refuse more than one worker a device, all but one of which would disturb the others; on the CPU that is one
        in all."""
        config = self.probe.config
        if not self.probe.settings.times or not is_controller(config):
            return
        # "popen", "3*popen".
        parts = (spec.partition("*") for spec in config.getoption("tx"))
        workers = sum(int(number) if star and number.isdigit() else 1 for number, star, _ in parts)
        devices = max(1, len(set(self.probe.shared_devices)))
        if workers > devices:
            there = "there is one device" if devices == 1 else f"there are {devices} devices"
            wanted = f"times are measured by one worker a device, and {there}; give -n {devices}, or leave it out"
            raise SettingsError("-n", workers, wanted)

    @property
    def traits(self) -> Sequence[Trait]:
        """The number of devices says how many workers may measure."""
        needs: Sequence[Trait] = ("one worker a device",) if self.probe.settings.times else ()
        return (*needs, "needs devices") if needs and not self.probe.machines else needs

    def begin(self, reporting: Reporting) -> None:
        if self.probe.settings.times:
            check_benchmark(self.probe.settings.benchmark, self.probe.others)

    def judge(self, judged: ItemVerdict) -> None:
        """Compare its time and memory with another run's. What looks slower is measured again: what else the machine
        does passes, and a slower call stays one."""
        others = OtherTimes(self.probe.settings.time_limit, self.probe.others)
        verdict, identity = judged.verdict, judged.identity
        if verdict.memory is not None:
            verdict = judged.verdict = replace(verdict, memory=others.memory(verdict.memory, identity))
        if verdict.time is None:
            return
        time = others.compare(verdict.time, identity)
        for seconds in WAITS:
            if not time.is_slower or judged.checked.subject is None:
                break
            measurement.sleep(min(seconds, self._patience))
            self._patience = max(0.0, self._patience - seconds)
            again = others.compare(self.probe.checker.timed_again(judged.checked), identity)
            # How many times as long it took as elsewhere.
            time = min(time, again, key=lambda each: math.inf if each.beside is None else each.beside.ratio)
        verdict = replace(verdict, time=time)
        judged.verdict = slower(verdict) if time.is_slower else verdict
