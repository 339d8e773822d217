"""Which failures the terminal shortens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.plugin.grouped_failures import GroupedFailures
from pytest_probe.reports.groups import NO_LINE
from tests.support.made_results import made_result

# The same API and direction: cases of one group.
CASES = (0, 16, 32)


def item_of(number: int) -> str:
    return f"dump.json::{made_result(number).portable_id.name}"


def shortened(failures: GroupedFailures) -> list[str]:
    """The texts of the failures that are left of all that failed once, those of others as one word."""
    reports = [SimpleNamespace(nodeid=item_of(number), longrepr=f"failure of {number}") for number in CASES]
    writer = SimpleNamespace(fullwidth=80)
    config = SimpleNamespace(
        option=SimpleNamespace(tbstyle="auto", reportchars="fE"), get_terminal_writer=lambda: writer
    )
    reporter: Any = SimpleNamespace(verbosity=0, config=config, stats={"failed": reports})
    failures.shorten(reporter)
    return ["shortened" if hasattr(each, "_pdbshown") else str(each.longrepr) for each in reports]


@pytest.fixture
def failures() -> GroupedFailures:
    found = GroupedFailures()
    for number in CASES:
        found.add(item_of(number), [made_result(number, "error")], NO_LINE)
    return found


def test_an_item_that_passes_at_last_is_in_no_group(failures: GroupedFailures) -> None:
    for number in CASES[:2]:
        failures.add(item_of(number), [made_result(number)], NO_LINE)
    assert shortened(failures) == [f"failure of {number}" for number in CASES]


def test_a_test_with_several_checks_is_in_no_group(failures: GroupedFailures) -> None:
    failures.add(item_of(CASES[0]), [made_result(number, "error") for number in CASES[:2]], NO_LINE)
    assert shortened(failures)[0] == "failure of 0"
