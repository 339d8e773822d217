"""--probe-worth: each case that passed is spoiled and judged again; and the table of what passes would have shown."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_probe.features.worth.report import Report
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.judged import Judged
from pytest_probe.plugin.reporting import Reporting

if TYPE_CHECKING:
    from pytest_probe.features.worth.case import Spoiling


class WorthOfPasses(Feature):
    end_table = Report

    @cached_property
    def _spoiling(self) -> Spoiling:
        from pytest_probe.features.worth.case import Spoiling

        return Spoiling(self.probe.checker)

    def judge(self, judged: Judged) -> None:
        if self.probe.settings.worth:
            judged.verdict = replace(judged.verdict, worth=self._spoiling.of(judged.checked))

    def end(self, reporting: Reporting) -> None:
        for line in self.table.below(int(self.probe.settings.worth or 0)):
            reporting.trouble(line)
