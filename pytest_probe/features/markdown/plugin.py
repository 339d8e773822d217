"""A summary in Markdown: in --probe-out, and where a CI job shows it."""

from __future__ import annotations

import os

import pytest

from pytest_probe.features.markdown.page import Failing, error_commands, on_github, page, step_summary
from pytest_probe.model.verdict import SEVERITY
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.report_results import OUTCOMES, carried
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import Probe
from pytest_probe.reports.groups import GroupMember
from pytest_probe.reports.results_file import results_in
from pytest_probe.system.files import replacing

FILE = "summary.md"


class Markdown(Feature):
    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._failing: dict[str, tuple[GroupMember, Failing]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember an item with results that failed, until it is run again."""
        if report.outcome not in OUTCOMES or (report.when == "setup" and report.passed):
            self._failing.pop(report.nodeid, None)
        if report.failed and (results := results_in(carried(report))):
            file, line, _ = report.location
            crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
            worst = max(results, key=lambda result: SEVERITY[result.verdict])
            # A report of a run that goes on tells of no crash.
            found = next((f"{each.name}: {each.reason}" for each in worst.outputs if each.reason), "")
            reason = (crash or worst.reason or found or worst.verdict).splitlines()[0]
            path = os.path.normpath(self.probe.config.rootpath / file)
            failing = Failing(worst.id, reason, path, 0 if line is None else line + 1)
            self._failing[report.nodeid] = GroupMember.of(worst), failing

    def end(self, reporting: Reporting) -> None:
        if not (reporting.tally.verdicts or reporting.not_run):
            return
        summary = reporting.summary(1000)
        # The members of a group stand together, in the order of calls, and groups as they are listed.
        places = {group.first.key: place for place, group in enumerate(reporting.tally.groups.of("error", "warning"))}
        found = sorted(self._failing.values(), key=lambda pair: (places.get(pair[0].key, len(places)), pair[0].order))
        failing = [failing for _, failing in found]
        bold = (summary.alarm, *reporting.told)
        lines = page(reporting.header, reporting.tally, failing, reporting.not_run, summary.lines, bold)
        text = "".join(f"{line}\n" for line in lines)
        out, step = self.probe.settings.out, step_summary()
        try:
            if out is not None:
                with replacing(self.probe.written_at(out / FILE)) as temporary:
                    temporary.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            reporting.trouble(f"the summary {FILE} cannot be written ({error.strerror})")
        try:
            if step is not None:
                with step.open("a", encoding="utf-8", errors="replace") as file:
                    file.write(text)
        except OSError as error:
            # Nobody asked for this one: GitHub names the file in each job.
            reporting.remark(f"the summary for {step} cannot be written ({error.strerror})")

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Mark the lines of calls that failed, where GitHub shows them."""
        if on_github() and self._failing:
            terminalreporter.ensure_newline()
            for line in error_commands([failing for _, failing in self._failing.values()]):
                terminalreporter.write_line(line)
