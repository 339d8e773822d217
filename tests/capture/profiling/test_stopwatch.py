from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pytest_probe.capture.profiling import stopwatch as stopwatches
from pytest_probe.capture.profiling.stopwatch import MOST_SAMPLES, Durations, Section, Spent, Stopwatch
from pytest_probe.capture.profiling.track import Api
from tests.capture.profiling.conftest import Clock


class Program:
    """Calls that take as long as they are told to."""

    def __init__(self, clock: Clock, **options: bool) -> None:
        self.clock = clock
        self.stopwatch = Stopwatch(**options)
        self.stopwatch.start()

    def call(self, name: str, before: int, inside: Callable[[], Any] = lambda: None, after: int = 0) -> Any:
        def function() -> Any:
            self.clock.pass_(before)
            result = inside()
            self.clock.pass_(after)
            return result

        return self.stopwatch.track().call(self.stopwatch.api("torch", name), function, (), {})

    def rows(self, section: str = "") -> dict[str, Spent]:
        self.stopwatch.finish()
        found: Section = self.stopwatch.sections[section] if section else self.stopwatch.whole
        return {f"{api.name}{'' if api.direction == 'forward' else ' backward'}": spent for api, spent in found.rows()}


def test_a_call_inside_another_is_part_of_it(clock: Clock) -> None:
    program = Program(clock)
    program.call("outer", 1_000, lambda: program.call("inner", 500), 2_000)
    assert [(name, spent.total, spent.own) for name, spent in program.rows().items()] == [("outer", 3.5, 3.5)]


def test_nested_total_is_self_and_children(clock: Clock) -> None:
    program = Program(clock, nested=True)

    def children() -> None:
        program.call("inner", 500, lambda: program.call("leaf", 100), 50)
        program.call("leaf", 300)

    program.call("outer", 1_000, children, 2_000)
    rows = program.rows()
    assert {name: (spent.calls, spent.total, spent.own) for name, spent in rows.items()} == {
        "outer": (1, 3.95, 3.0),
        "inner": (1, 0.65, 0.55),
        "leaf": (2, 0.4, 0.4),
    }
    assert sum(spent.own for spent in rows.values()) == pytest.approx(3.95)
    assert sum(spent.share for spent in rows.values()) == pytest.approx(1.0)


def test_an_exception_passes_and_leaves_the_track_as_it_was(clock: Clock) -> None:
    program = Program(clock, nested=True)

    def fails() -> None:
        clock.pass_(100)
        raise KeyError("the program's")

    with pytest.raises(KeyError, match="the program's"):
        program.call("outer", 1_000, lambda: program.call("inner", 10, fails), 5)
    program.call("later", 7)
    rows = program.rows()
    assert {name: (spent.calls, spent.errors, spent.total, spent.own) for name, spent in rows.items()} == {
        "outer": (0, 1, 1.11, 1.0),
        "inner": (0, 1, 0.11, 0.11),
        "later": (1, 0, 0.007, 0.007),
    }


def test_what_begins_and_ends_counts_inside_a_call(clock: Clock) -> None:
    program = Program(clock)
    node = program.stopwatch.api("torch", "linear", "backward")

    def backward() -> None:
        track = program.stopwatch.track()
        track.begin(node)
        clock.pass_(300)
        track.note(node, *track.end(node))

    program.call("backward", 100, backward, 50)
    rows = program.rows()
    assert {name: (spent.total, spent.own) for name, spent in rows.items()} == {
        "backward": (0.45, 0.15),
        "linear backward": (0.3, 0.3),
    }


def test_what_an_exception_left_open_ends_with_what_is_below(clock: Clock) -> None:
    program = Program(clock)
    outer, inner = (program.stopwatch.api("torch", name, "backward") for name in ("outer", "inner"))
    track = program.stopwatch.track()
    track.begin(outer)
    track.begin(inner)
    clock.pass_(10)
    track.note(outer, *track.end(outer))
    assert track.end(inner) == (0, 0, 0)
    program.call("later", 5)
    assert list(program.rows()) == ["outer backward", "later"]


def test_a_region_that_ends_behind_the_call_in_which_it_began_leaves_calls_timed(clock: Clock) -> None:
    program = Program(clock)
    region, track = program.stopwatch.api("torch", "region"), program.stopwatch.track()
    program.call("outer", 10, lambda: track.begin(region))
    track.end_call(region)
    program.call("later", 5, lambda: program.call("inner", 5))
    assert {name: spent.calls for name, spent in program.rows().items()} == {"outer": 1, "region": 1, "later": 1}


def test_threads_do_not_mix(clock: Clock) -> None:
    program = Program(clock, nested=True)
    thread = threading.Thread(target=lambda: program.call("there", 100))

    def meanwhile() -> None:
        thread.start()
        thread.join()

    program.call("here", 10, meanwhile)
    rows = program.rows()
    assert {name: (spent.total, spent.own) for name, spent in rows.items()} == {
        "here": (0.11, 0.11),
        "there": (0.1, 0.1),
    }
    assert program.stopwatch.threads == 2


def test_sections_have_tables_of_their_own_and_those_of_one_name_share_one(clock: Clock) -> None:
    program = Program(clock)
    program.call("outside", 1_000)
    for _ in range(2):
        program.stopwatch.begin_section("step")
        program.call("linear", 200)
        program.stopwatch.begin_section("loss")
        program.call("cross_entropy", 30)
        program.stopwatch.end_section()
        program.stopwatch.end_section()
    assert set(program.rows()) == {"outside", "linear", "cross_entropy"}
    assert {name: spent.calls for name, spent in program.rows("step").items()} == {"linear": 2, "cross_entropy": 2}
    assert set(program.rows("step/loss")) == {"cross_entropy"}
    step = program.stopwatch.sections["step"]
    assert (step.times, step.spent) == (2, 460)


def test_a_section_without_a_name_gets_one(clock: Clock) -> None:
    program = Program(clock)
    program.stopwatch.begin_section("")
    program.stopwatch.end_section()
    assert list(program.stopwatch.sections) == ["section 1"]


def test_an_end_without_a_start_warns_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    program = Program(clock)
    program.stopwatch.end_section()
    program.stopwatch.end_section()
    assert [record.message for record in caplog.records] == [
        "pytest-probe: end_analysis() without a start_analysis() before it: nothing ends here"
    ]


def test_sections_left_open_end_with_the_program_and_are_named(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    program = Program(clock)
    program.stopwatch.begin_section("step")
    program.stopwatch.begin_section("loss")
    program.call("linear", 200)
    assert program.rows("step/loss")["linear"].calls == 1
    assert "these sections were still open at the end, and end there: step, step/loss" in caplog.text


def test_rows_by_shape_are_beside_those_of_the_api(clock: Clock) -> None:
    program = Program(clock)
    whole = program.stopwatch.api("torch", "add")
    for shapes, time in (("float32[2]", 10), ("float32[3]", 20), ("float32[2]", 30)):
        row = Api("torch", "add", shapes=shapes, whole=whole)
        program.stopwatch.track().call(row, clock.pass_, (time,), {})
    program.stopwatch.finish()
    rows = program.stopwatch.whole.rows()
    whole, spent = rows[0]
    assert (whole.shapes, spent.calls) == ("", 3)
    assert spent.total == pytest.approx(0.06)
    assert [spent.share for api, spent in rows if not api.shapes] == [1.0]


def test_a_thread_that_goes_on_after_the_end_adds_nothing(clock: Clock) -> None:
    program = Program(clock)
    program.call("linear", 10)
    assert program.rows()["linear"].calls == 1
    program.call("linear", 10)
    assert program.rows()["linear"].calls == 1


def test_counts_are_exact_beyond_what_a_log_holds(clock: Clock) -> None:
    program = Program(clock, traced=True)
    for _ in range(5_000):
        program.call("linear", 3)
    rows = program.rows()
    assert rows["linear"].calls == 5_000
    assert rows["linear"].total == pytest.approx(15.0)
    assert sum(map(len, program.stopwatch.traces().values())) == 5_000


def test_a_trace_is_bounded_and_says_so(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stopwatches, "_MOST_TRACED", 3)
    program = Program(clock, traced=True)
    for _ in range(5):
        program.call("linear", 3)
    assert program.rows()["linear"].calls == 5
    assert sum(map(len, program.stopwatch.traces().values())) == 3
    assert "the trace holds the first 3 calls, the table holds all" in caplog.text


class Device:
    """Goes on for 500 ns with each call, and allocates 8 bytes."""

    memory = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def before(self, api: Api) -> int:
        return 0

    def after(self, api: Api, token: int) -> int:
        self._clock.pass_(500)
        return 8 - token


def test_a_device_is_waited_for_at_first_level_calls_only(clock: Clock) -> None:
    program = Program(clock, nested=True)
    apis = [program.stopwatch.api("torch", name, clock=Device(clock)) for name in ("outer", "inner")]
    track = program.stopwatch.track()
    track.call(apis[0], lambda: track.call(apis[1], clock.pass_, (10,), {}), (), {})
    rows = program.rows()
    assert (rows["outer"].total, rows["outer"].memory) == (0.51, 8)
    assert (rows["inner"].total, rows["inner"].memory) == (0.01, None)


def test_times_of_the_device_are_read_at_the_end_for_the_sections_of_the_call(clock: Clock) -> None:
    program = Program(clock)
    api = program.stopwatch.api("torch", "add")
    program.stopwatch.begin_section("step")
    program.call("add", 10)
    program.stopwatch.later(api, lambda: 2_000.0)
    program.stopwatch.end_section()
    program.call("add", 10)
    program.stopwatch.later(api, lambda: 1_000.0)
    assert (program.rows("step")["add"].device, program.rows()["add"].device) == (2.0, 3.0)


# Logs of calls (when each began, its time, that of its children), of those that raised, the time of all, and a summary.
SUMMARIES: dict[str, tuple[list[Any], list[Any], int, dict[str, Any]]] = {
    "the first call counts in the sums and in nothing else": (
        [([0, 10_000, 20_000], [9_000, 1_000, 3_000], [0, 500, 0])],
        [],
        12_500,
        {"calls": 3, "total": 13.0, "own": 12.5, "share": 1.0, "first": 9.0, "least": 1.0, "p50": 2.0},
    ),
    "the first call is the earliest of all threads": (
        [([500, 600], [7_000, 1_000], [0, 0]), ([100], [2_000], [0])],
        [],
        1,
        {"first": 2.0, "least": 1.0, "p99": pytest.approx(6.94)},
    ),
    "one call has no percentiles": (
        [([0], [1_000], [0])],
        [],
        0,
        {"first": 1.0, "p50": None, "p99": None, "least": None, "memory": None, "device": None, "share": 0.0},
    ),
    "calls that raised are counted apart and their time is in the sums": (
        [([0, 1], [1_000, 1_000], [0, 0])],
        [([5_000], [2_000])],
        5_000,
        {"calls": 2, "errors": 1, "total": 7.0, "own": 5.0, "p99": 1.0},
    ),
}


@pytest.mark.parametrize("claim", SUMMARIES)
def test_a_summary_of_durations(claim: str) -> None:
    logs, failed, whole, wanted = SUMMARIES[claim]
    durations = Durations()
    for log in logs:
        durations.add(*log)
    for log in failed:
        durations.add_failed(*log)
    found = durations.summary(whole)
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_percentiles_come_from_a_sample_of_all_calls_and_counts_from_all() -> None:
    durations, chance = Durations(), random.Random(7)
    times = [chance.randrange(1, 1_000_000) for _ in range(20 * MOST_SAMPLES)]
    for start in range(0, len(times), 1_500):
        part = times[start : start + 1_500]
        durations.add(range(start, start + len(part)), part, [0] * len(part))
    found = durations.summary(sum(times))
    assert found.calls == len(times)
    assert found.total == pytest.approx(sum(times) / 1e3)
    # Of 10,000 uniform samples the standard error of the median is 0.5 %, of p90 0.3 %.
    assert found.p50 == pytest.approx(500, rel=0.03)
    assert found.p90 == pytest.approx(900, rel=0.02)
    assert len(durations._kept) == MOST_SAMPLES


def test_memory_grows_and_shrinks() -> None:
    durations = Durations()
    durations.add([0], [1], [0])
    durations.grow(64)
    durations.grow(-16)
    assert durations.summary(0).memory == 48
