"""Everything about pytest-xdist, which is imported where it runs alone: devices for workers, workers that die.

The first SIGKILL during a case gives it to another worker, the second is its result. So a run that the system disturbed
ends with the results of one that it did not.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from msgspec import structs
from msgspec.structs import replace

from pytest_probe.errors import SettingsError
from pytest_probe.model.result import FUZZED, AnnouncedCall, FatalCall, PortableId, Result
from pytest_probe.model.run import RECORDED
from pytest_probe.model.verdict import Verdict
from pytest_probe.plugin import junit
from pytest_probe.plugin.report_results import carry
from pytest_probe.plugin.reproduce import item_command
from pytest_probe.plugin.session import ProcessSession
from pytest_probe.reports.running_case import (
    Deaths,
    Ending,
    Running,
    add_fatal_call,
    by_limit,
    fatal_calls_of,
    file_of,
    memory_kills,
    read_running,
    verdict_on,
)
from pytest_probe.settings import STARTED_IN

# Deaths that no item explains, a worker, after which the run ends: a worker that dies while it starts always will.
IDLE_DEATHS = 4
# A case at which so many processes died is not run again.
DEATHS_OF_A_CASE = 2
# A search in which so many calls ended their process is given up.
FATAL_CALLS = 4
# What pytest's reports call an attempt that is made again.
AGAIN = "rerun"
# A process whose pipes have closed has ended; the system may take a moment to say how.
STATUS_SECONDS = 10.0


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def is_controller(config: pytest.Config) -> bool:
    """Does this process hand its items to workers?"""
    distributes = bool(config.getoption("tx", None)) and config.getoption("dist", "no") != "no"
    return distributes and not config.option.collectonly and not is_worker(config)


def workers_describe_devices(probe: ProcessSession) -> bool:
    """Do the workers say what the devices are, so that this process imports no framework?"""
    return not probe.has("needs devices") and (probe.machines is not None or is_controller(probe.config))


def check_devices(config: pytest.Config, probe: ProcessSession) -> None:
    """Raises SettingsError where several devices have no workers to share them out to."""
    devices, shared = probe.settings.devices, is_worker(config) or is_controller(config) or probe.machines
    if len(devices) > 1 and not (shared or config.option.collectonly):
        value = ",".join(devices)
        raise SettingsError(
            "--probe-device", value, f"several devices need workers: add -n {len(devices)}, or give one device"
        )


def auto_workers(probe: ProcessSession) -> int | None:
    """How many workers -n auto is: one a device, None on the CPU, where pytest-xdist knows, unless that may have one
    worker only."""
    devices = probe.shared_devices
    if len(devices) > 1 or probe.has("one worker a device"):
        return max(1, len(devices))
    name = probe.name_of(next(iter(devices), None), probe.frameworks[0])
    return None if name in ("cpu", RECORDED) or name.split(":")[0] in probe.registry.devices else 1


class Controller:
    """The side of a distributed run that hands out devices and hears of workers that die."""

    def __init__(self, probe: ProcessSession) -> None:
        self._probe = probe
        self._held: dict[Any, str] = {}
        self._slots: dict[Any, int] = {}
        self._unexplained = 0
        self._deselected = 0
        self._ended: dict[Any, str] = {}
        self.folder = probe.running_folder or Path(tempfile.mkdtemp(prefix="pytest-probe-"))
        self._deaths = Deaths(probe.running_folder)
        self._died: pytest.TestReport | None = None
        self._memory_kills = memory_kills()
        # A record that kills its worker must not end the run: xdist's own cap would leave items unrun.
        self._replaces = probe.config.getoption("maxworkerrestart", None) is None
        if self._replaces:
            probe.config.option.maxworkerrestart = str(2**31)
        self._limit = IDLE_DEATHS * len(probe.config.getoption("tx"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        for feature in self._probe.features:
            node.workerinput.update(feature.for_workers())
        node.workerinput["probe_width"] = self._probe.width
        node.workerinput["probe_running"] = str(self.folder)
        node.workerinput[STARTED_IN] = str(self._probe.config.invocation_params.dir)
        node.workerinput["probe_split"] = self._probe.config.getoption("dist") == "worksteal"
        devices = self._probe.settings.devices if workers_describe_devices(self._probe) else self._probe.shared_devices
        # To count the devices of a kind would import a framework here: a worker does that by its number.
        if workers_describe_devices(self._probe) and len(devices) < 2:
            taken = set(self._slots.values())
            slot = next(number for number in itertools.count() if number not in taken)
            self._slots[node] = node.workerinput["probe_slot"] = slot
        elif devices:
            held = list(self._held.values())
            self._held[node] = node.workerinput["probe_device"] = min(devices, key=held.count)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object | None:
        """It replaces only the default scheduler, unchanged."""
        if config.getoption("dist") != "load" or config.getoption("maxschedchunk", None) is not None:
            return None
        if self._probe.has("in order"):
            return None
        from pytest_probe.plugin.scheduling import CostlyFirst

        return CostlyFirst(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        self._held.pop(node, None)
        self._slots.pop(node, None)
        if error is None:
            # What the workers left out, each of them the same, for the last line of pytest's, which counts here only.
            output = getattr(node, "workeroutput", {})
            if "probe_deselected" in output and not self._deselected:
                reporter = self._probe.config.pluginmanager.getplugin("terminalreporter")
                if reporter is not None:
                    self._deselected = output["probe_deselected"]
                    reporter.stats.setdefault("deselected", []).extend([SimpleNamespace()] * self._deselected)
            return
        self._unexplained += 1
        if self._unexplained > self._limit:
            pytest.exit(f"{self._unexplained} workers died without an item to blame; run without -n to see why", 3)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Whose death was it? An item that had ended keeps its result, one that had not begun is given to another
        worker, and so is one that was killed from outside, once."""
        node: Any = getattr(report, "node", None)
        device = node.workerinput.get("probe_device")
        owned = (feature.own_item(crashitem, device) for feature in self._probe.features)
        path, name, command = next(filter(None, owned), (*self._probe.dumps.of_item(crashitem), ""))
        dumps = self._probe.dumps
        if not (command or dumps.is_dump(path) or (path.suffix != ".py" and dumps.recognises(path))):
            self._unexplained -= 1
            return
        if node in self._ended:  # it did not die while it started
            self._unexplained -= 1
        if self._ended.get(node) == crashitem:
            _runs_again(report)
            return
        death, ending = self._death(node), Ending(status_of(node), memory_kills() > self._memory_kills)
        self._memory_kills = memory_kills()
        if death.item != crashitem and _again(sched, crashitem):
            _runs_again(report)
            return
        if node not in self._ended:
            self._unexplained -= 1
        death = structs.replace(death, id=f"{self._probe.dumps.label(path)}::{name}")
        drawn = death.call if death.call is not None and death.call.is_drawn else None
        times = self._deaths.add(death) if ending.killed or drawn is None else 1
        disturbed = ending.killed and times < DEATHS_OF_A_CASE
        timed_out = by_limit(death, ending.status)
        verdict = verdict_on(death, ending, times=times, timed_out=timed_out)
        goes_on = disturbed
        if drawn is not None and not disturbed:
            verdict, goes_on = self._passing_over(death.id, drawn, verdict)
        if self._replaces and goes_on and _again(sched, crashitem):
            _runs_again(report)
            return
        self._report(report, path, death, verdict, command)

    def _passing_over(self, id: str, call: AnnouncedCall, verdict: Verdict) -> tuple[Verdict, bool]:
        """Note a drawn call that ended its process, for the next one to pass over. The verdict on a search that is
        given up, and whether there were too few of those for that."""
        add_fatal_call(self.folder, FatalCall(id, call, verdict.reason.removesuffix(f": {call}"), verdict.kind))
        found = fatal_calls_of(self.folder, id)
        notes = tuple(f"{FUZZED}{each}" for each in found)
        reason = f"{verdict.reason}; the search was given up after {len(found)} such calls"
        return replace(verdict, reason=reason, notes=notes), len(found) < FATAL_CALLS

    def _death(self, node: Any) -> Running:
        """What the worker was running."""
        file = file_of(self.folder, node.workerinput["workerid"])
        found = read_running(file)
        file.unlink(missing_ok=True)
        return found

    def _report(self, report: pytest.TestReport, path: Path, death: Running, verdict: Verdict, command: str) -> None:
        """Let the report say what the case died of; command: of an item of a feature's own."""
        crashed = PortableId.parse(death.id)
        device = report.node.workerinput.get("probe_device")
        report.location = (str(path), None, f"{crashed.name} ")
        died = result_of(self._probe, crashed, verdict, device, death.folded)
        command = command or item_command(self._probe, path, crashed.name, crashed.dtype or None, device)
        say(report, path, died, command, device)
        report.when = "call"
        self._died = report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """pytest-xdist reports a death alone; what reads reports knows the other phases of an item."""
        if report is not self._died:
            yield
        else:
            hook = self._probe.config.hook
            hook.pytest_runtest_logreport(report=passed(report, "setup"))
            yield
            hook.pytest_runtest_logreport(report=passed(report, "teardown"))
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        if report.when == "teardown":
            self._ended[getattr(report, "node", None)] = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Nothing is shown of an attempt that is made again."""
        return ("", "", "") if hasattr(report, "probe_again") else None

    def pytest_unconfigure(self) -> None:
        if self._probe.settings.out is None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _runs_again(report: pytest.TestReport) -> None:
    report.outcome = AGAIN  # type: ignore[assignment]
    report.probe_again = True  # type: ignore[attr-defined]


def _again(sched: Any, item: str) -> bool:
    """Let another worker run it; False where the way of distribution cannot."""
    try:
        sched.mark_test_pending(item)
    except NotImplementedError:
        return False
    return True


def status_of(node: Any) -> int | None:
    """How the worker's process ended, as subprocess has it; None where it is no child of this one."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    try:
        return None if process is None else process.wait(STATUS_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def say(report: pytest.TestReport, path: Path, result: Result, command: str, device: str | None) -> None:
    """Let a report say what a case came to that no process could report; command runs it again, device is as the
    process was given it."""
    if result.verdict == "skip":
        report.outcome, report.longrepr = "skipped", (str(path), 1, f"Skipped: {result.reason}")
    else:
        where = f" on {device}" if device else ""
        report.longrepr = f"{result.portable_id.name}{where}: {result.reason}\nto reproduce: {command}"
    report.user_properties = list(junit.properties(carry(report, [result])))


def passed(call: pytest.TestReport, when: Literal["setup", "teardown"]) -> pytest.TestReport:
    """The report of a phase that passed, of an item whose process could not report it."""
    # junit takes an item's properties from its last report.
    properties = call.user_properties if when == "teardown" else []
    worker = {"node": vars(call)["node"]} if hasattr(call, "node") else {}
    return pytest.TestReport(
        call.nodeid, call.location, call.keywords, "passed", None, when, user_properties=properties, **worker
    )


def result_of(probe: ProcessSession, identity: PortableId, verdict: Verdict, device: str | None, folded: int) -> Result:
    """The result of a case that a process died of; device as the worker was given it; folded counts the cases that it
    stands for."""
    paths = {probe.dumps.label(path): path for path in probe.dumps.paths}
    path = paths.get(identity.label)
    framework = probe.dumps.framework_of(path) if path is not None else probe.frameworks[0]
    return Result.of(
        verdict,
        identity,
        api=identity.api,
        direction=identity.direction,
        dtype=identity.dtype,
        device=probe.name_of(device, framework),
        duration=0.0,
        folded=folded,
    )
