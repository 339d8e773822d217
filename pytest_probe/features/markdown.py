"""A summary in Markdown: in --probe-out, and where a CI job shows it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec import Struct

from pytest_probe.model.verdict import SEVERITY
from pytest_probe.plugin.feature import Feature
from pytest_probe.plugin.report_results import OUTCOMES, carried
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.groups import GroupMember
from pytest_probe.reports.results_file import results_in
from pytest_probe.reports.tally import Tally
from pytest_probe.reports.terminal import count, summary_lines
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable, printable_line

FILE = "summary.md"


class Markdown(Feature):
    def __init__(self, probe: ProcessSession) -> None:
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
            reason = (crash or worst.why).splitlines()[0]
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
        bold = (summary.alarm, *reporting.troubles)
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


# Failing cases that it shows.
_SHOWN = 50
# GitHub shows ten errors of a step.
_MAX_FAILING = 10


class Failing(Struct, frozen=True):
    """An item that failed: its id, why in one line, and the line of the program that made the call, from 1; 0 where
    only a file is known."""

    id: str
    reason: str
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def page(
    header: Sequence[str],
    tally: Tally,
    failing: Sequence[Failing],
    not_run: int,
    gate: Sequence[str] = (),
    bold: Sequence[str] = (),
) -> Iterator[str]:
    """The lines of the page. gate are those of the gate, the counts first; bold is what nobody may overlook."""
    summary = list(summary_lines(tally, not_run=not_run, width=1000))
    failed = f"{count(len(failing), 'case')} failed" if failing else "nothing failed"
    yield f"## pytest-probe: {failed}"
    yield ""
    first = (line.removeprefix("probe: ") for line in header[:1])
    yield from (f"- {_text(line)}" for line in (*tally.groups.lines(), summary[0], *gate[:2], *first))
    if not_run:
        yield f"- **{count(not_run, 'item')} did not run**"
    yield from (f"- **{_text(line)}**" for line in bold if line)
    if failing:
        yield from ("", "| failed | why | where |", "|---|---|---|")
    for each in failing[:_SHOWN]:
        yield f"| {_code(each.id)} | {_text(each.reason)} | {_code(each.place)} |"
    if len(failing) > _SHOWN:
        yield f"\nand {len(failing) - _SHOWN:,} more"
    for title, lines in (("More of the gate", gate[2:]), ("The whole summary", summary[1:])):
        if lines:
            yield from ("", f"<details><summary>{title}</summary>", "", "~~~text")
            yield from (line.replace("~~~", "~ ~ ~") for line in lines)
            yield from ("~~~", "", "</details>")
    yield ""


def _text(text: str) -> str:
    """The text in one line, with all marks of Markdown and tables escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", printable_line(text))


def _code(text: str) -> str:
    """The text as code for a cell of a table."""
    return f"`{printable_line(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def on_github() -> bool:
    """Does the run happen there?"""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def step_summary() -> Path | None:
    """The file that becomes the page of the step."""
    name = os.environ.get("GITHUB_STEP_SUMMARY", "")
    return Path(name) if name and on_github() else None


def error_commands(failing: Sequence[Failing]) -> Iterator[str]:
    """The commands that mark the lines, ten at most."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    for each in failing[:_MAX_FAILING]:
        line = f",line={each.line}" if each.line else ""
        # GitHub knows files by their path in the checkout.
        path = Path(os.path.abspath(each.file))
        inside = workspace and path.is_relative_to(workspace)
        place = f"file={_property(path.relative_to(workspace).as_posix() if inside else each.file)}{line}"
        yield f"::error {place},title={_property(each.id)}::{_data(each.reason)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
