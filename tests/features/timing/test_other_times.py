"""The time of a case beside a benchmark's and a baseline's: which one, and which limit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.features.timing.plugin import OtherTimes, limit_of, slower
from pytest_probe.model.baseline import KeptCase, KeptTime
from pytest_probe.model.measurement import CaseMemory, CaseTime, TimeBeside, microseconds
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.reports.result_set import OtherResults, ResultSet

ID = PortableId("dump.json", "Torch.exp.0.forward")


def time(median: float, least: float | None = None, note: str = "") -> CaseTime:
    return CaseTime(median, median, median, median if least is None else least, note=note)  # type: ignore[arg-type]


def benchmark(found: CaseTime | None, identity: PortableId = ID, memory: CaseMemory | None = None) -> OtherResults:
    verdict = Verdict("pass", "", time=found, memory=memory)
    result = Result.of(verdict, identity, api="Torch.exp", direction="forward", dtype="", device="cpu", duration=0.0)
    return ResultSet("benchmark", "base", {str(identity): result})


def baseline(*times: KeptTime, same_device: bool = True, limits: bool = True) -> OtherResults:
    cases = {str(ID): KeptCase(str(ID), "89abcdef", "pass", time=found) for found in times}
    return ResultSet("baseline", "kept", cases, same_device=same_device, limits=limits)


def test_the_benchmark_goes_before_the_baseline() -> None:
    kept = baseline(KeptTime(5.0, 5.0))
    found = OtherTimes(1.15, [benchmark(time(10.0, 9.0)), kept]).compare(time(12.0), ID)
    assert found.beside == TimeBeside("benchmark", 10.0, 1.2, 1.15, 9.0)
    found = OtherTimes(1.15, [benchmark(None), kept]).compare(time(12.0), ID)
    assert found.beside == TimeBeside("baseline", 5.0, 2.4, 1.15)


def test_another_dtype_takes_another_time() -> None:
    narrow = PortableId("dump.json", "Torch.exp.0.forward", "bfloat16")
    others = OtherTimes(1.15, [benchmark(time(10.0), narrow)])
    assert others.compare(time(12.0), ID).beside is None
    assert others.compare(time(12.0), narrow).beside is not None


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (time(12.0, note="too short"), time(10.0)),
        (time(12.0), time(10.0, note="too short")),
        (time(12.0), CaseTime(reason="cpu raised")),
        (CaseTime(reason="cpu raised"), time(10.0)),
        (time(0.0), time(10.0)),
        (time(12.0), None),
    ],
)
def test_what_says_nothing_is_not_compared(mine: CaseTime, theirs: CaseTime | None) -> None:
    assert OtherTimes(1.15, [benchmark(theirs)]).compare(mine, ID) == mine


def test_times_of_another_device_are_not_compared() -> None:
    assert OtherTimes(1.15, [baseline(KeptTime(5.0, 5.0), same_device=False)]).compare(time(12.0), ID).beside is None
    assert OtherTimes(1.15, [baseline()]).compare(time(12.0), ID).beside is None


def test_an_update_has_no_limit_beside_its_baseline() -> None:
    found = OtherTimes(1.15, [baseline(KeptTime(5.0, 5.0), limits=False)]).compare(time(12.0), ID)
    assert found.beside == TimeBeside("baseline", 5.0, 2.4)
    assert not found.is_slower


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
