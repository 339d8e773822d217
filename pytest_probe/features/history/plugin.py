"""--probe-history: the run is appended to a file when it ends."""

from __future__ import annotations

from pytest_probe.model.result import Result
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.reports.history_file import HistoryRun, NotAppended, check
from pytest_probe.system.text import printable_line


class History(Feature):
    traits = frozenset({"needs run"})

    def begin(self, reporting: Reporting) -> None:
        assert self.probe.settings.history is not None
        self._path = self.probe.settings.history
        check(self._path)
        self._run = HistoryRun()

    def add(self, result: Result) -> None:
        self._run.add(result)

    def close(self, reporting: Reporting) -> None:
        out, goes_on = self.probe.settings.out, self.probe.has("goes on")
        try:
            folder = "" if out is None else printable_line(str(out))
            self._run.append(self._path, {**reporting.run, "folder": folder}, goes_on=goes_on)
        except NotAppended as error:
            reporting.trouble(f"the run was not appended to {self._path}: {error}")
