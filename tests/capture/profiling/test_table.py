from __future__ import annotations

import pytest

from pytest_probe.capture.profiling import table
from tests.capture.profiling.conftest import Clock
from tests.capture.profiling.test_stopwatch import Program


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (None, "-"),
        (0.0, "0.00 us"),
        (0.994, "0.99 us"),
        (9.994, "9.99 us"),
        (9.996, "10.0 us"),
        (999.4, "999 us"),
        (999.6, "1.00 ms"),
        (12_345.0, "12.3 ms"),
        (999_600.0, "1.00 s"),
        (123_456_789.0, "123 s"),
    ],
)
def test_durations_have_three_digits(microseconds: float | None, text: str) -> None:
    assert table.duration(microseconds) == text


def test_the_table(clock: Clock) -> None:
    program = Program(clock, nested=True)
    for _ in range(3):
        program.call("Functional.softmax", 1_000, lambda: program.call("Tensor.softmax", 5_000))
    clock.pass_(2_000)
    program.stopwatch.begin_section("empty")
    program.stopwatch.end_section()
    program.stopwatch.finish()
    assert table.text(program.stopwatch).splitlines() == [
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
    head, names, row = table.text(program.stopwatch).splitlines()
    assert head.endswith("; times are those of issuing, then the device went on for 3.00 ms")
    assert names.split()[-3:] == ["errors", "device", "API"]
    assert row.split()[-4:] == ["1", "2.00", "ms", "Torch.add"]


def test_rows_beyond_a_screen_are_counted(clock: Clock) -> None:
    program = Program(clock)
    for number in range(5):
        program.call(f"Torch.api{number}", 10)
    program.stopwatch.finish()
    assert table.text(program.stopwatch, rows=2).splitlines()[-1] == "... and 3 more rows"
