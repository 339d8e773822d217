from __future__ import annotations

import json
import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_probe.capture.profiling import report
from pytest_probe.errors import SettingsError
from tests.capture.profiling.conftest import Clock
from tests.capture.profiling.test_stopwatch import Program


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (None, "-"),
        (0.0, "0.00 us"),
        (9.994, "9.99 us"),
        (9.996, "10.0 us"),
        (999.6, "1.00 ms"),
        (999_600.0, "1.00 s"),
        (123_456_789.0, "123 s"),
    ],
)
def test_durations_have_three_digits(microseconds: float | None, text: str) -> None:
    assert report.duration(microseconds) == text


def test_the_table_has_calls_times_and_shares(clock: Clock) -> None:
    program = Program(clock, nested=True)
    for _ in range(3):
        program.call("Functional.softmax", 1_000, lambda: program.call("Tensor.softmax", 5_000))
    clock.pass_(2_000)
    program.stopwatch.begin_section("empty")
    program.stopwatch.end_section()
    program.stopwatch.finish()
    assert report.text(program.stopwatch).splitlines() == [
        "all: 20.0 us, of which 18.0 us in 6 calls of 2 APIs",
        "share     self    total  calls      p50      p90      p99    least    first  API",
        "83.3%  15.0 us  15.0 us      3  5.00 us  5.00 us  5.00 us  5.00 us  5.00 us  Tensor.softmax",
        "16.7%  3.00 us  18.0 us      3  6.00 us  6.00 us  6.00 us  6.00 us  6.00 us  Functional.softmax",
        "",
        "section empty: 0.00 us, of which 0.00 us in 0 calls of 0 APIs",
    ]


def test_what_is_rare_has_a_column_only_where_it_is(clock: Clock) -> None:
    program = Program(clock)
    with pytest.raises(ZeroDivisionError):
        program.call("Torch.add", 1_000, lambda: 1 // 0)
    program.stopwatch.later(program.stopwatch.api("torch", "Torch.add"), lambda: 2e6)
    program.stopwatch.waited = 3_000_000
    program.stopwatch.finish()
    head, names, row = report.text(program.stopwatch).splitlines()
    assert head.endswith("; times are those of issuing, then the device went on for 3.00 ms")
    assert names.split()[-3:] == ["errors", "device", "API"]
    assert row.split()[-4:] == ["1", "2.00", "ms", "Torch.add"]


def test_rows_beyond_a_screen_are_counted(clock: Clock) -> None:
    program = Program(clock)
    for number in range(5):
        program.call(f"Torch.api{number}", 10)
    program.stopwatch.finish()
    assert report.text(program.stopwatch, rows=2).splitlines()[-1] == "... and 3 more rows"


def written(program: Program, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    program.stopwatch.finish()
    report.write(program.stopwatch, report.take(str(folder)))
    lines = [json.loads(line) for line in (folder / report.ROWS).read_text().splitlines()]
    return lines, json.loads((folder / report.TRACE).read_text())["traceEvents"]


def check_trace(events: list[dict[str, Any]]) -> None:
    """What the format asks: each B has its E of the same name, nested, and times rise within a thread."""
    stacks: defaultdict[int, list[str]] = defaultdict(list)
    last: dict[int, float] = {}
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        if event["ph"] == "M":
            continue
        assert event["ts"] >= last.get(event["tid"], 0.0)
        last[event["tid"]] = event["ts"]
        if event["ph"] == "B":
            stacks[event["tid"]].append(event["name"])
        else:
            assert event["ph"] == "E"
            assert stacks[event["tid"]].pop() == event["name"]
    assert not any(stacks.values())


def test_files_hold_rows_and_a_trace(clock: Clock, tmp_path: Path) -> None:
    program = Program(clock, nested=True, traced=True)
    program.stopwatch.begin_section("step")
    program.call("outer", 1_000, lambda: program.call("inner", 500), 2_000)
    program.stopwatch.end_section()
    lines, events = written(program, tmp_path / "out")
    assert lines[0]["kind"] == "run"
    assert [(line.get("section"), line.get("api"), line.get("own")) for line in lines[1:]] == [
        ("", None, None),
        ("", "outer", 3.0),
        ("", "inner", 0.5),
        ("step", None, None),
        ("step", "outer", 3.0),
        ("step", "inner", 0.5),
    ]
    check_trace(events)
    calls = [(event["ph"], event["name"], event["ts"]) for event in events if event["ph"] != "M" and event["tid"]]
    assert calls == [("B", "outer", 0.0), ("B", "inner", 1.0), ("E", "inner", 1.5), ("E", "outer", 3.5)]
    assert [(event["ph"], event["name"]) for event in events if event["tid"] == 0][1:] == [("B", "step"), ("E", "step")]


@given(st.recursive(st.integers(0, 50), lambda calls: st.lists(calls, max_size=4), max_leaves=30))
def test_any_nesting_makes_a_valid_trace(calls: Any) -> None:
    from pytest_probe.capture.profiling.stopwatch import Stopwatch

    stopwatch = Stopwatch(nested=True, traced=True)
    stopwatch.start()

    def make(tree: Any) -> None:
        if isinstance(tree, list):
            for one in tree:
                stopwatch.track().call(stopwatch.api("torch", f"call{len(tree)}"), make, (one,), {})

    make(calls)
    stopwatch.finish()
    check_trace(list(report.events(stopwatch)))


@pytest.mark.parametrize("name", [report.ROWS, report.TRACE])
def test_a_folder_that_holds_a_run_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(SettingsError, match=rf"^-o: '{tmp_path}' cannot be used; it holds the times of an earlier run"):
        report.take(str(tmp_path))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="it cannot be written"):
        report.take(str(tmp_path / "file" / "out"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(SettingsError, match="no permission to write there"):
        report.take(str(tmp_path))
