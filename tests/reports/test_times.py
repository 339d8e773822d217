"""The slowest cases of a run."""

from __future__ import annotations

import msgspec

from pytest_probe.model.measurement import CaseMemory, CaseTime, TimeBeside
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.reports import junit
from pytest_probe.reports.tally import TimeTally

TIME = CaseTime(
    12.5, 12.0, 13.0, 11.0, 90.0, 0.2, 4000, "host", "warm", 1, input_shapes=((2, 3), ()), output_shapes=((2, 3),)
)
BESIDE = TimeBeside("benchmark", 10.0, 1.25, 1.15, 9.0)


def result(
    time: CaseTime | None = TIME,
    name: str = "Torch.exp.0.forward",
    memory: CaseMemory | None = None,
    verdict: str = "pass",
    kind: str = "",
    outputs: tuple[OutputVerdict, ...] = (),
    dtype: str = "",
) -> Result:
    found = Verdict(verdict, "auto", "", kind, "float32", outputs, time=time, memory=memory)  # type: ignore[arg-type]
    identity = PortableId("dump.json", name, dtype)
    return Result.of(
        found, identity, api=identity.api, direction=identity.direction, dtype="", device="cpu", duration=0.1
    )


def of(median: float, ratio: float | None = None) -> CaseTime:
    beside = None if ratio is None else TimeBeside("benchmark", median / ratio, ratio)
    return CaseTime(median, median, median, median, beside=beside)


def test_nothing_is_said_where_nothing_was_timed() -> None:
    tally = TimeTally()
    tally.add(result(None))
    assert list(tally.lines()) == []


def test_the_ten_slowest_by_ratio_then_by_share() -> None:
    tally = TimeTally()
    for number in range(1, 13):
        tally.add(result(of(float(number), ratio=2.0 / number), f"Torch.exp.{number}.forward"))
    long = "Functional." + "long_" * 9
    tally.add(result(of(22.0), f"{long}.0.forward"))
    lines = list(tally.lines())
    assert lines[0] == "times: 13 cases, 100 us for one call of each"
    assert lines[1] == f"{'slowest compared with the other run':<44}   ratio      time     there"
    assert [line.split()[0] for line in lines[2:12]] == [f"Torch.exp.{number}.forward" for number in range(1, 11)]
    assert lines[2] == f"{'Torch.exp.1.forward':<44}       2      1 us    0.5 us"
    assert lines[12] == f"{'slowest':<44}   share      time"
    assert lines[13] == f"{long[:41]}...  22.0 %     22 us"
    assert [line.split()[0] for line in lines[14:]] == [f"Torch.exp.{number}.forward" for number in range(12, 3, -1)]
    assert max(map(len, lines)) <= 80


def test_what_was_not_timed_as_others_is_counted() -> None:
    tally = TimeTally()
    slow = msgspec.structs.replace(TIME, beside=BESIDE)
    for found in (slow, CaseTime(reason="raised"), msgspec.structs.replace(TIME, note="once")):
        tally.add(result(found))
    tally.add(result(msgspec.structs.replace(TIME, note="too short")))
    words = "1 slower than the limit, 1 timed once, 1 too short, 1 not timed"
    assert next(tally.lines()) == f"times: 3 cases, 37.5 us for one call of each, {words}"


def test_calls_no_slower_than_an_empty_one_have_no_shares() -> None:
    tally = TimeTally()
    tally.add(result(of(0.0)))
    assert list(tally.lines()) == ["times: 1 case, 0 us for one call of each"]


def test_junit_has_time_ratio_and_peak() -> None:
    time = msgspec.structs.replace(TIME, beside=BESIDE)
    found = dict(junit.properties(result(time, memory=CaseMemory(4096, 100))))
    assert (found["probe.time_us"], found["probe.time_ratio"], found["probe.peak_bytes"]) == (12.5, 1.25, 4096)
    assert not any(name.startswith(("probe.time", "probe.peak")) for name in dict(junit.properties(result(None))))
    assert "probe.peak_bytes" not in dict(junit.properties(result(memory=CaseMemory(reason="nothing counts"))))


def test_results_come_back_whole() -> None:
    found = result(msgspec.structs.replace(TIME, beside=BESIDE), memory=CaseMemory(4096, 100, 24, source="profiler"))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Result) == found
