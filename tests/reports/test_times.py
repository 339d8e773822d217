"""The slowest cases of a run: by the times of their calls, and by what the probe took for them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_probe.model.measurement import CaseMemory, CaseTime, TimeBeside, parts_of_case, spending
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import OutputVerdict, Verdict
from pytest_probe.plugin import junit
from pytest_probe.reports.tally import Slowest, TimeTally

TIME = CaseTime(
    12.5, 12.0, 13.0, 11.0, 90.0, 0.2, 4000, "host", "warm", 1, input_shapes=((2, 3), ()), output_shapes=((2, 3),)
)
BESIDE = TimeBeside("benchmark", 10.0, 1.25, 1.15, 9.0)


def result(
    timed: CaseTime | None = TIME,
    name: str = "Torch.exp.0.forward",
    memory: CaseMemory | None = None,
    verdict: str = "pass",
    kind: str = "",
    outputs: tuple[OutputVerdict, ...] = (),
    dtype: str = "",
) -> Result:
    found = Verdict(verdict, "auto", "", kind, "float32", outputs, time=timed, memory=memory)  # type: ignore[arg-type]
    identity = PortableId("dump.json", name, dtype)
    return Result.of(
        found, identity, api=identity.api, direction=identity.direction, dtype="", device="cpu", duration=0.1
    )


def of(median: float, ratio: float | None = None) -> CaseTime:
    beside = None if ratio is None else TimeBeside("benchmark", median / ratio, ratio)
    return CaseTime(median, median, median, median, beside=beside)


@pytest.mark.parametrize(
    ("timed", "lines"), [(None, []), (of(0.0), ["times: 1 case, 0 us for one call of each"])], ids=["none", "no share"]
)
def test_what_has_no_share_has_no_line(timed: CaseTime | None, lines: list[str]) -> None:
    tally = TimeTally()
    tally.add(result(timed))
    assert list(tally.lines()) == lines


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


def test_junit_has_time_ratio_and_peak() -> None:
    timed = msgspec.structs.replace(TIME, beside=BESIDE)
    found = dict(junit.properties(result(timed, memory=CaseMemory(4096, 100))))
    assert (found["probe.time_us"], found["probe.time_ratio"], found["probe.peak_bytes"]) == (12.5, 1.25, 4096)
    assert not any(name.startswith(("probe.time", "probe.peak")) for name in dict(junit.properties(result(None))))
    assert "probe.peak_bytes" not in dict(junit.properties(result(memory=CaseMemory(reason="nothing counts"))))


def test_a_part_inside_another_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 10.0, 10.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    with parts_of_case() as parts:
        with spending("judge"), spending("runs"):
            pass
        with spending("runs"):
            pass
    assert parts() == {"judge": 2.0, "runs": 2.5}


def test_outside_of_a_case_nothing_is_counted() -> None:
    with spending("runs"):
        pass
    with parts_of_case() as parts:
        pass
    assert parts() == {}


def _written(count: int | None, least: float = 0.0) -> list[str]:
    lines: list[str] = []
    found: Any = Slowest(count, least)
    for number, seconds in enumerate((0.5, 2.0, 1.0, 0.001)):
        parts = {"judge": seconds / 2, "reference": seconds / 4}
        found.add(SimpleNamespace(id=f"dump.json::Torch.exp.{number}.forward", duration=seconds, parts=parts))
    found.add(SimpleNamespace(id="dump.json::Torch.exp.4.forward", duration=9.0, parts={}))
    found.write(SimpleNamespace(write_sep=lambda _, title: lines.append(title), write_line=lines.append))
    return lines


def test_the_slowest_come_first_and_those_without_parts_are_left_out() -> None:
    assert _written(2) == [
        "slowest cases of the probe, in seconds",
        "      total     inputs     device  reference       runs      judge  case",
        "      2.000      0.000      0.000      0.500      0.000      1.000  dump.json::Torch.exp.1.forward",
        "      1.000      0.000      0.000      0.250      0.000      0.500  dump.json::Torch.exp.2.forward",
    ]


@pytest.mark.parametrize(("count", "least", "shown"), [(None, 0.0, 0), (0, 0.0, 6), (0, 0.1, 5), (9, 5.0, 0)])
def test_as_many_are_shown_as_pytest_shows(count: int | None, least: float, shown: int) -> None:
    assert len(_written(count, least)) == shown
