"""--probe-against-framework: each recorded call by two frameworks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import pytest

from pytest_probe.features.against_call.calls import TwoCalls
from pytest_probe.features.against_framework.report import Report
from pytest_probe.model.dump import Dump
from pytest_probe.model.result import Result
from pytest_probe.plugin.collectors import ProbeFile
from pytest_probe.plugin.feature import Feature, Summary
from pytest_probe.plugin.items import ProbeItem
from pytest_probe.plugin.session import Probe
from pytest_probe.reports.results_file import RESULTS, read_results


class AgainstFramework(Feature):
    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._report = Report()

    @property
    def _other(self) -> str:
        return str(self.probe.settings.against_framework)

    @cached_property
    def _calls(self) -> TwoCalls:
        """Both sides have one reference."""
        checker = self.probe.checker
        sides = checker.changed(keeps_sides=True), checker.changed(keeps_sides=True, framework=self._other)
        return TwoCalls(*sides, self._other)

    def header(self) -> Iterable[str]:
        own = ", ".join(self.probe.frameworks)
        yield f"probe: A is what {own} computes, B what {self._other} does"

    def items(self, parent: pytest.Collector, dump: Dump) -> Iterator[ProbeItem]:
        assert isinstance(parent, ProbeFile)
        return parent.cases(dump, self._calls)

    def add(self, result: Result) -> None:
        self._report.add(result)

    def summary(self, width: int) -> Summary:
        return Summary([*self._report.lines(width)])

    def tables(self, folder: Path) -> Iterable[Path]:
        report = Report()
        for result in read_results(folder / RESULTS):
            report.add(result)
        return report.write(folder)
