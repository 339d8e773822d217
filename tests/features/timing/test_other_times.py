"""The time of a case beside a benchmark's and a baseline's: which one, and which limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_probe.features.timing.plugin import OtherTimes, limit_of, slower
from pytest_probe.model.baseline import KeptCase, KeptTime
from pytest_probe.model.measurement import CaseMemory, CaseTime, TimeBeside, microseconds
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.reports.result_set import OtherResults, ResultSet

ID = PortableId("dump.json", "Torch.exp.0.forward")
NARROW = PortableId("dump.json", "Torch.exp.0.forward", "bfloat16")


def time(median: float, least: float | None = None, note: str = "") -> CaseTime:
    return CaseTime(median, median, median, median if least is None else least, note=note)  # type: ignore[arg-type]


def benchmark(found: CaseTime | None, identity: PortableId = ID, memory: CaseMemory | None = None) -> OtherResults:
    verdict = Verdict("pass", "", time=found, memory=memory)
    result = Result.of(verdict, identity, api="Torch.exp", direction="forward", dtype="", device="cpu", duration=0.0)
    return ResultSet("benchmark", "base", {str(identity): result})


def baseline(*times: KeptTime, same_device: bool = True, limits: bool = True) -> OtherResults:
    cases = {str(ID): KeptCase(str(ID), "89abcdef", "pass", time=found) for found in times}
    return ResultSet("baseline", "kept", cases, same_device=same_device, limits=limits)


KEPT = KeptTime(5.0, 5.0)
RAISED = CaseTime(reason="cpu raised")
# A time of 12 us or another one, the results that it is compared with, and what stands beside it.
COMPARED: dict[str, tuple[CaseTime, list[OtherResults], TimeBeside | None]] = {
    "the benchmark goes before the baseline": (
        time(12.0), [benchmark(time(10.0, 9.0)), baseline(KEPT)], TimeBeside("benchmark", 10.0, 1.2, 1.15, 9.0),
    ),
    "a baseline where that has no time": (
        time(12.0), [benchmark(None), baseline(KEPT)], TimeBeside("baseline", 5.0, 2.4, 1.15),
    ),
    "an update has no limit": (time(12.0), [baseline(KEPT, limits=False)], TimeBeside("baseline", 5.0, 2.4)),
    "another device": (time(12.0), [baseline(KEPT, same_device=False)], None),
    "another dtype": (time(12.0), [benchmark(time(10.0), NARROW)], None),
    "too short here": (time(12.0, note="too short"), [benchmark(time(10.0))], None),
    "too short there": (time(12.0), [benchmark(time(10.0, note="too short"))], None),
    "raised here": (RAISED, [benchmark(time(10.0))], None),
    "raised there": (time(12.0), [benchmark(RAISED)], None),
    "no time at all": (time(0.0), [benchmark(time(10.0))], None),
    "none there": (time(12.0), [benchmark(None), baseline()], None),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_which_time_stands_beside(name: str) -> None:
    mine, others, beside = COMPARED[name]
    assert OtherTimes(1.15, others).compare(mine, ID) == replace(mine, beside=beside)


def test_another_dtype_has_its_own_time() -> None:
    assert OtherTimes(1.15, [benchmark(time(10.0), NARROW)]).compare(time(12.0), NARROW).beside is not None


@pytest.mark.parametrize(
    ("median", "least", "expected"),
    [
        (11.4, 11.0, False),
        (11.6, 11.6, True),
        # A machine that does something else for most of the time.
        (20.0, 10.0, False),
        (10.0, 20.0, False),
    ],
)
def test_median_and_least_both_decide(median: float, least: float, expected: bool) -> None:
    found = OtherTimes(1.15, [benchmark(time(10.0, 9.5))]).compare(time(median, least), ID)
    assert found.is_slower is expected


def test_without_a_limit_nothing_is_slower() -> None:
    assert not OtherTimes(None, [benchmark(time(10.0))]).compare(time(1000.0), ID).is_slower


@pytest.mark.parametrize(
    ("limit", "spread", "expected"),
    [
        (None, None, None),
        (None, KeptTime(1.0, 2.0), None),
        (1.15, None, 1.15),
        (1.15, KeptTime(1.0, 1.0), 1.15),
        (1.15, KeptTime(1.0, 1.05), 1.15),
        (1.15, KeptTime(1.0, 1.3), 1.394),
    ],
)
def test_what_runs_differ_by_widens_the_limit(
    limit: float | None, spread: KeptTime | None, expected: float | None
) -> None:
    assert limit_of(limit, spread) == expected


@given(st.lists(st.floats(1e-3, 1e6), min_size=1), st.lists(st.floats(1e-3, 1e6), min_size=1))
def test_the_spread_of_all_runs_is_that_of_both_parts(first: list[float], second: list[float]) -> None:
    one, other, both = KeptTime.of(first), KeptTime.of(second), KeptTime.of([*first, *second])
    assert one is not None
    assert other is not None
    assert both is not None
    assert one.joined(other) == both == other.joined(one)
    assert both.spread >= max(one.spread, other.spread, 1.0)


def test_the_spread_of_no_time_is_none_and_of_zero_infinite() -> None:
    assert KeptTime.of([]) is None
    assert KeptTime(0.0, 1.0).spread == math.inf


def test_a_slower_case_says_so() -> None:
    found = OtherTimes(1.15, [benchmark(time(10.0))]).compare(time(13.0), ID)
    judged = slower(Verdict("pass", "auto", time=found))
    reason = "1.3 times the benchmark's time: 10 us there, 13 us here; the limit is 1.15 times"
    assert (judged.verdict, judged.kind, judged.reason) == ("error", "slower", reason)
    wrong = slower(Verdict("error", "auto", "output.0: noise", time=found))
    assert (wrong.kind, wrong.reason, wrong.notes) == ("", "output.0: noise", (f"slower: {reason}",))


def test_memory_stands_beside_the_benchmarks() -> None:
    others = OtherTimes(None, [benchmark(None, memory=CaseMemory(100))])
    assert others.memory(CaseMemory(300), ID) == CaseMemory(300, benchmark_bytes=100)
    assert OtherTimes(None, [benchmark(None)]).memory(CaseMemory(300), ID) == CaseMemory(300)


@pytest.mark.parametrize(
    ("number", "text"), [(0.123, "0.123 us"), (13.44, "13.4 us"), (2040.0, "2.04 ms"), (1.3e6, "1.3 s")]
)
def test_durations_have_their_unit(number: float, text: str) -> None:
    assert microseconds(number) == text
