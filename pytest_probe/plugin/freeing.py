"""Reports let go of their results once all have seen them: pytest keeps each report until the run ends."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest


class Freeing:
    """Behind all others, when an item ends: attempts before it may still be looked at until then."""

    def __init__(self) -> None:
        self._held: dict[str, list[pytest.TestReport]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "probe"):
            self._held.setdefault(report.nodeid, []).append(report)
        # "???" is xdist's word for the one report of an item whose worker died.
        if report.when in ("teardown", "???"):
            for each in self._held.pop(report.nodeid, ()):
                _free(each)


def _free(report: Any) -> None:
    result = report.probe
    report.probe = _rest(result["verdict"], result.get("folded", 0))
    vars(report).pop("probe_checks", None)


@functools.cache
def _rest(verdict: str, folded: int) -> Mapping[str, Any]:
    """One for all reports that are alike."""
    return {"verdict": verdict, "folded": folded}
