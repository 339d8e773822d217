"""How far a run is: one line on a terminal, a plain line each minute in a log."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.order import costs_of
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.terminal import count
from pytest_probe.system import archive

# Seconds between two lines of a log, and between two states of a terminal's line.
LOGGED, DRAWN = 60.0, 0.1
# Seconds after which the time that is left can be estimated.
SURE = 3.0


def configure(config: pytest.Config, probe: ProcessSession, *, distributes: bool) -> None:
    """In the process that reports, and in processes that run items."""
    worker = getattr(config, "workerinput", None)
    if worker is None and not config.option.collectonly:
        config.pluginmanager.register(Begin(config, probe, distributes=distributes), "probe-begin")
    elif worker is not None and worker.get("probe_progress"):
        config.pluginmanager.register(Shares(), "probe-shares")


class Begin:
    """Registers the others once pytest has its reporter; not under -q, nor where it has none."""

    def __init__(self, config: pytest.Config, probe: ProcessSession, *, distributes: bool) -> None:
        self._config = config
        self._probe = probe
        self._distributes = distributes

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        plugins = self._config.pluginmanager
        reporter = plugins.getplugin("terminalreporter")
        if reporter is None or reporter.verbosity < 0:
            return
        # Tests of the user's own have letters of their own: a line is drawn where dumps alone are collected.
        paths, start = self._probe.dumps.paths, self._config.invocation_params.dir
        files = {path if (place := archive.split(path)) is None else place[0] for path in paths}
        given = {Path(os.path.normpath(start / arg.split("::")[0])) for arg in self._config.args}
        drawn = reporter.isatty and reporter.verbosity == 0 and bool(files) and given <= files
        plugins.register(Progress(reporter, drawn=drawn), "probe-progress")
        if not self._distributes:
            plugins.register(Shares(), "probe-shares")


class Shares:
    """Tells with each item's last report which share of the run's estimated cost it was."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        costs = costs_of([item] for item in session.items)
        total = sum(costs) or 1.0
        for item, cost in zip(session.items, costs, strict=True):
            if isinstance(item, NoticeItem):
                item.share = cost / total

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown" and isinstance(item, NoticeItem):
            report.probe_share = item.share  # type: ignore[attr-defined]
        return report


class Progress:
    """Counts what ended. drawn: in one line instead of pytest's letters."""

    def __init__(self, reporter: pytest.TerminalReporter, *, drawn: bool) -> None:
        self._reporter = reporter
        self._drawn = drawn
        self._shown = False
        self._done = 0
        self._share = 0.0
        self._failed: set[str] = set()
        self._begun = self._last = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        node.workerinput["probe_progress"] = True  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        self._session = session
        self._begun = self._last = time.monotonic()
        try:
            return (yield)
        finally:
            # In the place of letters, a short run has its line as well.
            if self._shown or (self._drawn and self._done):
                self._draw()
                self._reporter.line("")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """No letter for what the line counts."""
        found = yield
        if self._drawn and isinstance(found, tuple) and hasattr(report, "probe"):
            return found[0], "", ""
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when != "teardown":
            return
        self._done += 1
        self._share += getattr(report, "probe_share", 0.0)
        now = time.monotonic()
        if now - self._last >= (DRAWN if self._drawn else LOGGED):
            self._last = now
            (self._draw if self._drawn else self._write)()

    def _draw(self) -> None:
        self._shown = True
        self._reporter.rewrite(self._text(), erase=True)

    def _write(self) -> None:
        """A line of its own, also after letters."""
        if self._reporter.config.get_terminal_writer().width_of_current_line:
            self._reporter.line("")
            self._reporter.currentfspath = None
        self._reporter.write_line(self._text())

    def _text(self) -> str:
        total = max(self._done, self._session.testscollected)
        left = time_left(time.monotonic() - self._begun, self._share) if self._done < total else ""
        return f"probe: {self._done:,} of {total:,}, {count(len(self._failed), 'error')}{left and f', {left} left'}"


def time_left(passed: float, share: float) -> str:
    """The seconds that the rest takes in words, where this share of the cost took so many; "" while nobody knows."""
    if passed < SURE or not share > 0:
        return ""
    seconds = passed * max(0.0, 1.0 - share) / share
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
