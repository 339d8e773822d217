"""--probe-resume: what an earlier run found is taken over, and what is left runs.

Results are taken over at the end, because pytest starts nothing once an item has failed. Only failed results are
reported again, unless a plugin like junit's listens: 100,000 reports cost more than collecting.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from msgspec.structs import replace

from pytest_probe.errors import ResultsError, SettingsError
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import SEVERITY
from pytest_probe.options import NAMED
from pytest_probe.plugin import junit
from pytest_probe.plugin.collectors import node_of_file
from pytest_probe.plugin.feature import Feature, Trait
from pytest_probe.plugin.items import NoticeItem
from pytest_probe.plugin.report_results import carry
from pytest_probe.plugin.reporting import Reporting
from pytest_probe.plugin.run_dumps import address
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.plugin.xdist import DEATHS_OF_A_CASE, result_of, workers_describe_devices
from pytest_probe.reports.result_set import RunFolder
from pytest_probe.reports.results_file import (
    RESULTS,
    RUN,
    Identity,
    ResultsWriter,
    check,
    decoded,
    lines_of,
    read_lines,
    refused,
)
from pytest_probe.reports.running_case import FOLDER, TIMEOUT, TIMER, Deaths, Ending, case_of_timeout, verdict_on
from pytest_probe.reports.selected import ITEMS, Items, fault_lines, faults, id_list, ids_in, is_of_test, read_items
from pytest_probe.system import archive
from pytest_probe.system.decoding import json_decoder
from pytest_probe.system.files import open_regular, temporary_path, try_lock
from pytest_probe.system.text import printable_line

_OPTION = "--probe-resume"
_ADVICE = "give the same, or a new folder"


class Earlier:
    """The run in a folder. Raises SettingsError where its run.json is missing or is none of ours.

    strict and timeout are settings of the run that goes on. finished: every item has its result, the run ended by
    itself, and the same verdicts failed in it. longer: what the time limit ended may have more time now, and runs
    again. remarks: what of its results runs again, and why.
    """

    def __init__(self, folder: Path, *, strict: bool, timeout: float) -> None:
        missing = f"{RUN} cannot be read ({{error.strerror}}), so there is no run to go on with; leave {_OPTION} out"
        self._folder = RunFolder.read(_OPTION, folder, missing)
        self._path = folder / RESULTS
        self.remarks: list[str] = []
        self.run = self._folder.run
        same_end = self.run.settings.get("strict", False) == strict
        self.finished = self.run.finished is not None and self.run.not_run == 0 and same_end
        before = self.run.settings.get("timeout")
        self.longer = isinstance(before, int | float) and before > 0 and (timeout == 0 or timeout > before)

    def check(self, now: Identity, *, devices_known: bool) -> None:
        """Raises SettingsError where the run that goes on is another one. devices_known: workers may report them later.
        A run that ended before it knew its devices has no results."""
        before = dict(self.run.identity)
        if not devices_known or not before.get("devices"):
            before["devices"] = now["devices"]
        check(_OPTION, str(self._folder.path), before, now, "resume", _ADVICE)

    def without_reruns(self, file: IO[bytes]) -> IO[bytes]:
        """The results file, locked, without what has to run again: lines that are damaged, cases that have several
        results, cases that the run did not select, cases that a shorter time limit ended, and checks of a test, of
        which some may be missing. Raises OSError, and SettingsError where the list of its cases cannot be used."""
        lines = list(self._lines())
        found = [id for id, _ in lines]
        ended = {id for id, kind in lines if self.longer and kind == TIMEOUT}
        unread = f"{ITEMS}, the list of its cases, cannot be read ({{error.strerror}}); give a new folder"
        with refused(_OPTION, self._folder.path, unread, "{error}; give a new folder"):
            # Results without a list: its run was none of ours.
            ended_early = self.run.selected is None and not found
            items = Items(()) if ended_early else read_items(self._folder.path, self.run.selected)
        wrong = faults(items, (id for id in found if id), self.run.without_result)
        missing = wrong.missing if self.finished else ()
        damaged = sum(id == "" for id in found)
        self.remarks = [f"{line}; they run again" for line in fault_lines(replace(wrong, missing=missing))]
        if damaged:
            self.remarks.append(
                f"it has {damaged:,} line{'s' * (damaged > 1)} that cannot be read; their cases run again"
            )
        if ended:
            self.remarks.append(f"{len(ended):,} of its cases took longer than its --probe-timeout; they run again")
        self.finished = self.finished and not self.remarks and None not in found
        again = {*wrong.doubled, *wrong.foreign, *ended}
        keep = [bool(id) and id not in again and (self.finished or not is_of_test(str(id))) for id in found]
        if all(keep):
            return file
        path = temporary_path(self._path)
        new = path.open("ab", buffering=0)
        try_lock(new)
        with open_regular(self._path) as old:
            new.writelines(line for line, stays in zip(old, keep, strict=True) if stays)
        path.replace(self._path)
        file.close()
        return new

    def _lines(self) -> Iterator[tuple[str | None, str]]:
        """The id of each line and its kind: the id is "" where it cannot be read, None where it was cut off at the
        end."""
        decoder = json_decoder(Result)
        with open_regular(self._path) as file:
            for line in file:
                found = "", ""
                with suppress(ResultsError):
                    result = decoded(line, decoder, RESULTS)
                    found = result.id, result.kind
                yield found if line.endswith(b"\n") else (None, "")


# How pytest's last line counts results that were taken over and did not fail.
_TAKEN_OVER = "resumed"
# Plugins that get each report in any run, and do nothing with one that passed. Any other listener, such as junit's
# plugin, gets all results that are taken over.
_QUIET = ("_pytest.terminal", "_pytest.main", "_pytest.logging", "_pytest.cacheprovider", "_pytest.stepwise")
_QUIET_PACKAGES = ("pytest_probe", "pytest_rerunfailures", "xdist", "syrupy")


class Resume(Feature):
    def __init__(self, probe: ProcessSession) -> None:
        super().__init__(probe)
        self._earlier: Earlier | None = None
        self._reporting: Reporting | None = None

    @property
    def traits(self) -> Sequence[Trait]:
        """Are the devices those of the results? A cluster's are known later."""
        return ("resumes",) if self.probe.machines else ("resumes", "needs devices")

    def begin(self, reporting: Reporting) -> None:
        settings, run, known = self.probe.settings, reporting.run, not workers_describe_devices(self.probe)
        assert settings.out is not None
        earlier = Earlier(settings.out, strict=settings.strict, timeout=settings.timeout)
        earlier.check(run["identity"], devices_known=known)
        if not known:
            # Nothing is known of this run's devices, so those of the results are kept until workers report.
            run["devices"] = earlier.run.devices
            run["identity"]["devices"] = earlier.run.identity["devices"]
        run["started"] = earlier.run.started
        self._reporting = reporting
        self._earlier = reporting.earlier = earlier

    def check(self, identity: Identity) -> None:
        if self._earlier is not None:
            self._earlier.check(identity, devices_known=True)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Leave out what has a result, in this process, and let the one that reports count what is taken over."""
        plugins, worker = config.pluginmanager, getattr(config, "workerinput", {})
        if "probe_resumed" in worker:
            path, size = worker["probe_resumed"]
            plugins.register(_Remaining(frozenset(ids_in(Path(path), size))), "probe-remaining")
        earlier, reporting = self._earlier, self._reporting
        if earlier is None or reporting is None:
            return
        done: frozenset[str] = frozenset()
        if earlier.finished:
            # Without workers: there is nothing to run.
            config.option.dist, config.option.tx, config.option.numprocesses = "no", [], 0
        else:
            folder = reporting.writer.folder
            _write_deaths(self.probe, reporting.writer, longer=earlier.longer)
            # The CSV files that the run wrote when it ended; others below the folder are of other runs.
            for path in (Path(os.path.normpath(folder / name)) for name in earlier.run.tables):
                if path.is_relative_to(folder) and path.suffix == ".csv":
                    path.unlink(missing_ok=True)
            done = frozenset(ids_in(folder / RESULTS))
            plugins.register(_Remaining(done), "probe-remaining")
        plugins.register(_Resumed(self.probe, reporting, earlier, done), "probe-resumed")


def _write_deaths(probe: ProcessSession, writer: ResultsWriter, *, longer: bool) -> None:
    """Note what the processes of the earlier run were running, and write the results of the cases that they died of.
    longer: a case that the time limit ended has more time now, and runs again."""
    folder = writer.folder / FOLDER
    known = frozenset(ids_in(writer.folder / RESULTS, writer.size))
    out_of_time = case_of_timeout(folder)
    deaths = Deaths(folder)
    deaths.of_earlier_processes()
    for death, times in deaths.last():
        ended = death.id == out_of_time
        if death.id not in known and not (ended and longer) and (ended or times >= DEATHS_OF_A_CASE):
            verdict = verdict_on(death, Ending(None), times=times, timed_out=ended)
            writer.write(lines_of([result_of(probe, PortableId.parse(death.id), verdict, probe.device, death.folded)]))
    (folder / TIMER).unlink(missing_ok=True)


class _Remaining:
    """Leaves out the items that have a result, after the items of other shards are left out."""

    def __init__(self, done: frozenset[str]) -> None:
        self._done = done

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        done = self._done
        items[:] = [item for item in items if not (isinstance(item, NoticeItem) and str(item.portable_id) in done)]


class _Resumed:
    """In the process that reports: counts the earlier run's results, and reports the failed ones again. Where that run
    had finished, nothing is collected, and this one ends as it did."""

    def __init__(self, probe: ProcessSession, reporting: Reporting, earlier: Earlier, done: frozenset[str]) -> None:
        self._probe = probe
        self._reporting = reporting
        self._earlier = earlier
        self._done = done
        self._folder = reporting.writer.folder
        self._results, self._size = self._folder / RESULTS, reporting.writer.size
        self._nodes = {probe.dumps.label(path): _node(probe, path) for path in probe.dumps.paths}
        self._replaying = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool | None:
        return self._earlier.finished or None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._earlier.finished:
            session.exitstatus = self._earlier.run.exit_status or pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self.pytest_collection_finish()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Is what is left what the earlier run did not run? Raises UsageError before anything runs."""
        found = self._folder / FOLDER / ITEMS
        if not found.exists():
            return
        option = NAMED["resume"].flag
        try:
            now = {item.id for item in read_items(found.parent).found}
            left = {item.id for item in read_items(self._folder).found if item.id not in self._done}
        except (OSError, ResultsError) as error:
            raise pytest.UsageError(str(SettingsError(option, str(self._folder), str(error)))) from None
        found.unlink()
        for ids, words in (
            (left - now, "its run selected {}, and this run does not"),
            (now - left, "this run selects {}, and its run did not"),
        ):
            if ids:
                wanted = f"{words.format(id_list(sorted(ids)))}; give the same selection, or a new folder"
                raise pytest.UsageError(str(SettingsError(option, str(self._folder), wanted)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["probe_resumed"] = [str(self._results), self._size]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Takes results over after the items have run: pytest starts nothing once something has failed."""
        try:
            return (yield)
        finally:
            self._replaying = True
            self._take_over(session)
            self._replaying = False

    def _take_over(self, session: pytest.Session) -> None:
        hook, silent = session.config.hook, 0
        # Does a plugin hear of reports that not every run has, as junit's?
        plugins = [impl.plugin for impl in hook.pytest_runtest_logreport.get_hookimpls()]
        modules = {getattr(plugin, "__name__", type(plugin).__module__) for plugin in plugins}
        all_of_them = any(name not in _QUIET and name.partition(".")[0] not in _QUIET_PACKAGES for name in modules)
        for nodeid, found in groupby(read_lines(self._results, Result, self._size), self._node):
            results = list(found)
            self._reporting.take_over(results)
            worst = max(results, key=lambda result: (self._fails(result), SEVERITY[result.verdict]))
            if all_of_them or self._fails(worst):
                for report in self._reports(nodeid, worst):
                    hook.pytest_runtest_logreport(report=report)
            else:
                silent += 1
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None and silent:
            # pytest's last line has the number of this category, and nothing else reads it.
            reporter.stats.setdefault(_TAKEN_OVER, []).extend([SimpleNamespace()] * silent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letter for what did not run here: pytest would count it in its progress."""
        if not (self._replaying and hasattr(report, "probe_resumed")):
            return None
        category = "" if report.when == "teardown" else "failed" if report.failed else _TAKEN_OVER
        return category, "", ""

    def pytest_report_header(self) -> list[str]:
        remarks = (f"probe: {self._folder}: {printable_line(remark)}" for remark in self._earlier.remarks)
        return [f"probe: going on with the run in {self._folder}", *remarks]

    def _fails(self, result: Result) -> bool:
        settings, runxfail = self._probe.settings, bool(self._probe.config.getoption("runxfail", False))
        return result.fails(strict=settings.strict, updates=settings.update, runxfail=runxfail)

    def _node(self, result: Result) -> str:
        """The node id of the item that had this result, as pytest's reports name it."""
        identity = result.portable_id
        if identity.label.endswith(".py"):
            return result.id.rpartition("::")[0]
        return f"{self._nodes.get(identity.label, identity.label)}::{identity.name}"

    def _reports(self, nodeid: str, result: Result) -> Iterator[pytest.TestReport]:
        file, _, name = nodeid.partition("::")
        fails = self._fails(result)
        known = result.change == "known" and not fails
        outcome = "failed" if fails else "skipped" if known or result.verdict == "skip" else "passed"
        longrepr: Any = None
        if outcome == "skipped":
            longrepr = (file, 1, f"Skipped: {result.reason}")
        elif outcome == "failed":
            head = f"{name} on {result.device}: {result.verdict}, found before the run was resumed"
            longrepr = f"{head}\n{result.why}"
        properties = junit.properties(result)
        location = (file, None, f"{name} ")
        for when in ("call", "teardown"):
            kind, said = (outcome, longrepr) if when == "call" else ("passed", None)
            report = pytest.TestReport(nodeid, location, {}, kind, said, when, duration=result.duration)  # type: ignore[arg-type]
            report.user_properties = list(properties)
            report.probe_resumed = True  # type: ignore[attr-defined]
            if when == "call":
                carry(report, [result])
                if known:
                    report.wasxfail = f"reason: known failure: {result.why}"
            yield report


def _node(probe: ProcessSession, path: Path) -> str:
    """The node id of a dump."""
    place = archive.split(path)
    if place is None:
        return node_of_file(probe, path)
    return f"{node_of_file(probe, place[0])}::{address(path).partition('::')[2]}"
