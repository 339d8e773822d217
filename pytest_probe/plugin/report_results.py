"""Reports carry results: what the terminal shows of them, and their lines of results.jsonl as one text.

pytest keeps each report, so the lines are removed when the item has ended. Other plugins run an item again after its
call or its teardown; of all runs the last one counts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from pytest_probe.model.result import Result
from pytest_probe.model.verdict import SEVERITY
from pytest_probe.reports.results_file import UNWRITTEN, written

# What else a report's outcome is called is an attempt that another plugin repeats.
OUTCOMES = ("passed", "failed", "skipped")


def carry(report: pytest.TestReport, results: Iterable[Result], message: str = "") -> Result:
    """Give a report these results, and a message behind its outcome. Gives the worst of them, which the terminal shows;
    a report of one that cannot be written has failed.

    A text, since execnet, pickle and pytest-reportlog take it as it is: no process between the item and the file reads
    it field by field.
    """
    lines, kept = zip(*map(written, results), strict=True)
    worst: Result = max(kept, key=lambda result: SEVERITY[result.verdict])
    if worst.kind == UNWRITTEN and report.outcome != "failed":
        report.outcome, report.longrepr = "failed", worst.reason
    report.probe = _outcome(worst.verdict, worst.folded, message)  # type: ignore[attr-defined]
    report.probe_results = "".join(lines)  # type: ignore[attr-defined]
    return worst


def carried(report: pytest.TestReport) -> str:
    """The lines that a report carries; "" where it has none."""
    return getattr(report, "probe_results", "")


@functools.lru_cache(1024)
def _outcome(verdict: str, folded: int, message: str = "") -> Mapping[str, Any]:
    """One for all reports that are alike."""
    return {"verdict": verdict, "folded": folded, **({"message": message} if message else {})}


class ReleaseResults:
    """Takes results out of reports once all have seen them, since pytest keeps each report until the run ends.

    Behind all others, when an item ends: attempts before it may still be looked at until then.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[pytest.TestReport]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if carried(report):
            self._held.setdefault(report.nodeid, []).append(report)
        # "???" is xdist's word for the one report of an item whose worker died.
        if report.when in ("teardown", "???"):
            for each in self._held.pop(report.nodeid, ()):
                _free(each)


def _free(report: Any) -> None:
    del report.probe_results
    # What came from another process has a mapping of its own. The message belongs to the line that -v prints: pytest's
    # own summary prints the outcome once more, in front of the id that people copy.
    report.probe = _outcome(report.probe["verdict"], report.probe["folded"])
