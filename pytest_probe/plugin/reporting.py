"""The one process of a run that reports: results file, header, letters, summary."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import version
from typing import Any

import pytest

from pytest_probe import frameworks
from pytest_probe.errors import HookFailed
from pytest_probe.model.dump import Frame
from pytest_probe.model.result import PortableId, Result
from pytest_probe.option_types import RESULTS
from pytest_probe.plugin import header
from pytest_probe.plugin.collectors import DAMAGED
from pytest_probe.plugin.feature import Summary
from pytest_probe.plugin.grouped_failures import GroupedFailures
from pytest_probe.plugin.identity import identity, of_devices
from pytest_probe.plugin.junit import group_properties, other_properties
from pytest_probe.plugin.report_results import OUTCOMES, carried
from pytest_probe.plugin.reproduce import NOT_SAVED
from pytest_probe.plugin.run_end import fail, unwritten
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import is_controller, workers_describe_devices
from pytest_probe.records import user_frame
from pytest_probe.reports import terminal
from pytest_probe.reports.answers import Answers
from pytest_probe.reports.groups import NO_LINE, Line
from pytest_probe.reports.results_file import EarlierResults, ResultsWriter, digest, results_in
from pytest_probe.reports.running_case import FOLDER, clear
from pytest_probe.reports.selected import ITEMS, read_items, selected_in
from pytest_probe.reports.tally import Overflows, Place, Slowest, Tally
from pytest_probe.system.text import printable, printable_line
from pytest_probe.user_errors import reporting_failures_of

LETTERS = {"passed": ".", "failed": "F", "skipped": "s"}


class Reporting:
    """Raises SettingsError where a device is unknown or --probe-out cannot be used."""

    def __init__(self, probe: ProcessSession) -> None:
        self._probe = probe
        self.tally, self.answers = Tally(), Answers()
        self._overflows = Overflows()
        self._slowest = Slowest(probe.config.option.durations, probe.config.option.durations_min or 0.0)
        # Cases that another side has, and that it has not.
        self._compared = Counter[bool]()
        self._finished = 0
        out = probe.settings.out
        self._failures = GroupedFailures("" if out is None else str(out / RESULTS))
        probe.config.pluginmanager.register(self._failures)
        # Lines of results, and the line of the program that made the call, or of a test.
        self._held: dict[str, tuple[str, Line]] = {}
        self._repeated: set[str] = set()
        self._trouble: list[str] = []
        self._writer_failed = False
        self._remarks: list[str] = []
        self._unsaved = ""
        self._runs = not probe.config.option.collectonly
        self.dumps = probe.dumps.readable()
        # What the devices are decides whether a baseline's bits can be compared.
        later = workers_describe_devices(probe)
        devices = self._described() if self._runs and not later else []
        self._unmatched = header.unmatched_names(probe, self.dumps)
        self.header = header.header(probe, devices, self.dumps, self._unmatched, later=later)
        self._damaged = probe.dumps.damaged() if self._runs else {}
        self._reported: set[PortableId] = set()
        self.run = _run(probe, devices) if self._runs and (out or probe.has("needs run")) else {}
        self._without_result: list[str] = []
        self._selected = False
        # The results that this run goes on behind.
        self.earlier: EarlierResults | None = None
        for feature in probe.features if self.run else ():
            feature.begin(self)
        self.dumps = [] if is_controller(probe.config) else self.dumps
        if is_controller(probe.config):
            probe.dumps.forget()
        self._writer = ResultsWriter(out, self.run, self.earlier) if out and self._runs else None

    def join(self, session: pytest.Session, finished: int) -> None:
        """Take over in the middle of a session, in which so many items have finished."""
        self._session, self._finished = session, finished

    def _described(self) -> list[dict[str, str]]:
        """The devices. A framework takes seconds to import: only for what will run, or where the user named what to
        look at."""
        probe, settings = self._probe, self._probe.settings
        here = (not frameworks.unavailable(dump.framework, stored=settings.judges_stored) for _, dump in self.dumps)
        if not (settings.devices or settings.out or probe.has("needs run") or any(here)):
            return []
        if probe.machines is not None:
            return probe.machines.devices()
        return probe.described(probe.shared_devices if is_controller(probe.config) else probe.settings.devices)

    def know_devices(self, devices: list[dict[str, str]]) -> None:
        """Take over what the workers say of their devices, where this process imports no framework. Raises
        SettingsError where the run that goes on had others."""
        if self.run:
            self.run["identity"] |= {"devices": of_devices(devices)}
            for feature in self._probe.features:
                feature.check(self.run["identity"])
            self.know(identity=self.run["identity"])
        reporter = self._probe.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None and reporter.verbosity >= 0:
            for line in header.of_devices(self._probe, devices):
                reporter.write_line(line)
        self.know(devices=devices)

    def know(self, **more: Any) -> None:
        """Take over what was not known when the run began, for what is written about it."""
        self.run |= more
        if self._writer is not None:
            self._writer.add(**more)

    def trouble(self, line: str) -> None:
        """Tell this at the end, and let the run fail."""
        self._trouble.append(line)

    def remark(self, line: str) -> None:
        """Tell this at the end; it fails nothing."""
        self._remarks.append(line)

    @property
    def troubles(self) -> Sequence[str]:
        """What fails the run besides its items."""
        return self._trouble

    def pytest_report_header(self) -> list[str]:
        return list(map(printable, self.header))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    # First, since junit takes an item's properties from its last report.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hold an item's results until it ends: of several attempts the last one counts."""
        item = report.nodeid
        if hasattr(report, "probe_resumed"):
            return
        self._know_selected()
        if report.outcome not in OUTCOMES:
            self._repeated.add(item)
        elif lines := carried(report):
            self._held[item] = lines, report.location[:2]
            self._repeated.discard(item)
        # "???" is xdist's word for the one report of an item whose worker died.
        if report.when not in ("teardown", "???"):
            return
        lines, place = self._held.pop(item, ("", NO_LINE))
        if item in self._repeated:
            self._repeated.discard(item)
            report.user_properties = other_properties(report.user_properties)
            return
        self._finished += 1
        if not lines:
            self._without_result.append(item)
        self._keep(item, lines, place)

    def _know_selected(self) -> None:
        """Note in run.json which items there are, once they are known."""
        if self._writer is None or self._selected or not (self._writer.folder / ITEMS).exists():
            return
        self._selected = True
        self.know(selected=selected_in(self._writer.folder))

    @property
    def writer(self) -> ResultsWriter:
        assert self._writer is not None
        return self._writer

    def take_over(self, results: Iterable[Result]) -> None:
        """Count what an earlier run found and wrote."""
        for result in results:
            self._count(result)

    def _keep(self, item: str, lines: str, place: Line) -> None:
        results = results_in(lines)
        self._failures.add(item, results, place)
        for result in results:
            self._count(result, place)
        if self._writer is not None:
            self._writer.write(lines)
        try:
            with reporting_failures_of("pytest_probe_results"):
                self._probe.config.hook.pytest_probe_results(results=results)
        except HookFailed as error:
            # A writer that fails for one item fails for many.
            if not self._writer_failed:
                self.trouble(str(error))
            self._writer_failed = True

    def _count(self, result: Result, place: Line = NO_LINE) -> None:
        self.tally.add(result, place)
        self.answers.add(result)
        self._overflows.add(result)
        self._slowest.add(result)
        for feature in self._probe.features:
            if (compared := feature.add(result)) is not None:
                self._compared[compared] += 1
        if result.portable_id.entry == DAMAGED:
            self._reported.add(result.portable_id)
        if not self._unsaved:
            self._unsaved = next((note for note in result.notes if note.startswith(NOT_SAVED)), "")

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str | tuple[str, dict[str, bool]]] | None:
        outcome = getattr(report, "probe", None)
        if outcome is None or hasattr(report, "wasxfail"):
            return None
        folded = f" +{outcome['folded']}" if outcome["folded"] else ""
        message = f" {outcome['message']}" if "message" in outcome else ""
        if outcome["verdict"] == "warning" and report.passed:
            return "warned", "w", (f"WARNED{folded}{message}", {"yellow": True})
        if (folded or message) and report.when == "call" and report.outcome in LETTERS:
            return report.outcome, LETTERS[report.outcome], f"{report.outcome.upper()}{folded}{message}"
        return None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        """Below pytest's own, so that the groups of errors stand at the end of the screen."""
        yield
        self._failures.restore(terminalreporter)
        width = terminal.width_of(terminalreporter)
        summary = self.summary(width)
        if self._runs and not self._probe.config.getoption("no_summary", False):
            overflows = self._overflows.lines(self._place(), each=terminalreporter.verbosity > 0)
            self._slowest.write(terminalreporter)
            terminal.summary(terminalreporter, self.tally, not_run=self.not_run, more=[*summary.lines, *overflows])
        for line in terminal.wrap(f"probe: {summary.alarm}" if summary.alarm else "", width=width):
            terminalreporter.write_line(line, red=True, bold=True)
        for line in summary.behind if self._runs else ():
            terminalreporter.write_line(line)
        if self._runs and not self._session.testscollected:
            for line in header.nothing_selected(self._probe, self._probe.dumps.readable()):
                terminalreporter.write_line(line, red=True)
        if self._runs and terminalreporter.verbosity < 0:  # without a header
            for line in self._unmatched:
                terminalreporter.write_line(line, red=True)
        for trouble in (*self._trouble, *self._remarks):
            terminalreporter.write_line(f"probe: {printable(trouble)}", red=True)

    def summary(self, width: int) -> Summary:
        """What the questions and the features say; width: the columns of the terminal."""
        found = [feature.summary(width) for feature in self._probe.features]
        lines = [*self.answers.lines(width), *(line for each in found for line in each.lines)]
        return Summary(lines, "".join(each.alarm for each in found), [line for each in found for line in each.behind])

    def _place(self) -> Place:
        """Finds the place of a case in the order of its dump's calls: forward first, then backward in reverse; and the
        line of the user's that made the call."""
        dumps = dict(self._probe.dumps.readable())

        @cache
        def place(id: PortableId) -> tuple[tuple[int, ...], Frame | None]:
            dump = dumps.get(id.label)
            if dump is None:
                return (), None
            at = self._probe.places(dump).get(id.call, 0)
            backward = id.direction == "backward"
            return (backward, -at if backward else at), user_frame(dump.stack(f"{id.call}.{id.direction}"))

        return place

    @property
    def not_run(self) -> int:
        return self._session.testscollected - self._finished

    # Innermost: the summary, which pytest writes around all others, shows what happened here.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        for item, held in self._held.items():  # which something kept from their end
            self._keep(item, *held)
        self._begin_with_groups(session.config)
        try:
            yield
        except OSError as error:
            self._trouble.append(unwritten(session.config, error))
        taken_over = self.earlier is not None and bool(self.tally.verdicts)
        empty = taken_over or self._probe.has("no items")
        if empty and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            exitstatus = session.exitstatus = pytest.ExitCode.OK
        if self._unsaved:
            self._trouble.append(self._unsaved.removeprefix(NOT_SAVED) + ": the tensors of one case or more are lost")
        # Damage that no item reported: -k and the like may have left the item out; the dump is damaged still.
        label = self._probe.dumps.label
        left_out = (
            text for path, text in self._damaged.items() if PortableId(label(path), DAMAGED) not in self._reported
        )
        self._trouble += [f"{text}\nThis fails the run, although its item {DAMAGED} was left out" for text in left_out]
        for feature in self._probe.features if self._runs else ():
            feature.end(self)
        if self._compared[False] and not self._compared[True] and not self._probe.has("part"):
            cases = terminal.count(self._compared[False], "case")
            self.trouble(f"nothing was compared: the other side has none of {cases} that ran, or none that can be")
        if self._writer is not None:
            self._close(self._writer, int(exitstatus))
        self.run |= self._summary(int(session.exitstatus))
        for feature in self._probe.features if self._runs else ():
            feature.close(self)
        if self._trouble:
            fail(session)

    def _begin_with_groups(self, config: pytest.Config) -> None:
        """In junit, and in the failures that the terminal prints."""
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            self._failures.shorten(reporter)
        junit = config.pluginmanager.get_plugin("junitxml")
        xml = None if junit is None else config.stash.get(junit.xml_key, None)
        if xml is not None:
            for name, line in group_properties(self.tally.groups):
                xml.add_global_property(name, line)

    def _summary(self, status: int) -> dict[str, Any]:
        """What run.json says of the end."""
        verdicts = dict(self.tally.verdicts)
        end = {"finished": _now(), "exit_status": status, "verdicts": verdicts, "not_run": self.not_run}
        if self._writer is None or not (self._without_result and self._selected):
            return end
        # Since a fixture or a hook of the project kept them from running.
        nodes = frozenset(self._without_result)
        found = read_items(self._writer.folder).found
        unjudged = [item.id for item in found if item.is_case and item.node in nodes]
        return {**end, "without_result": unjudged} if unjudged else end

    def _close(self, writer: ResultsWriter, status: int) -> None:
        clear(writer.folder / FOLDER, finished=not self.not_run)
        if self.earlier is not None and self.earlier.finished:
            writer.release()
            return
        status = status or int(bool(writer.trouble or self._trouble))
        self._know_selected()
        folder, tables = writer.folder, []
        try:
            written = [path for feature in self._probe.features for path in feature.tables(folder)]
            tables = [path.relative_to(folder).as_posix() for path in written]
        except OSError as error:
            lost = f"CSV files in {folder} cannot be written ({error.strerror}): results.jsonl has what they hold"
            self._trouble.append(lost)
            status = status or 1
        writer.close(**self._summary(status), tables=tables)
        if writer.trouble:
            self._trouble.insert(0, writer.trouble)


def _run(probe: ProcessSession, devices: list[dict[str, str]]) -> dict[str, Any]:
    """What `run.json` says at the start: everything that another run must share to be comparable."""
    packages = ("pytest-probe", "pytest", "numpy", "ml_dtypes", "msgspec")
    dumps = [
        {"label": probe.dumps.label(path), "path": printable_line(str(path)), "digest": digest(path)}
        for path in probe.dumps.paths
    ]
    return {
        "identity": identity(probe, devices, {dump["label"]: dump["digest"] for dump in dumps}),
        "settings": probe.settings.described(),
        "seed": probe.settings.seed,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "devices": devices,
        "dumps": dumps,
        "started": _now(),
        "finished": None,
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
