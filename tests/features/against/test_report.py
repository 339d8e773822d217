"""What a run of two dumps says first: the first own error as the program ran."""

from __future__ import annotations

import pytest

from pytest_probe.features.against.report import Report
from tests.support.made_results import made_pair


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        (("1 backward", "3 backward", "2 backward"), "3 backward"),
        (("3 backward", "2 forward", "1 forward"), "1 forward"),
        (("4 forward", "3 backward"), "3 backward"),
    ],
    ids=["backward in reverse", "forward first", "behind the last backward"],
)
def test_the_first_own_error_is_that_of_the_call_that_ran_first(wrong: tuple[str, ...], first: str) -> None:
    report = Report()
    for place, direction in map(str.split, wrong):
        report.add(made_pair(2 * int(place) + (direction == "backward"), "own"))
    line, *_ = report.lines(100)
    assert line.split(": ")[1].endswith("." + first.replace(" ", "."))
