"""Everything about pytest-xdist, which is never imported: devices for workers, workers that die."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from pytest_probe.core.result import PortableId, Result
from pytest_probe.core.verdict import Verdict
from pytest_probe.errors import SettingsError
from pytest_probe.plugin.session import Probe
from pytest_probe.reports.junit import properties

# Deaths that no item explains, a worker, after which the run ends: a worker that dies while it starts always will.
IDLE_DEATHS = 4
DIED = "the worker process died while it ran this case (a crash in native code, out of memory, or a time limit)"


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def is_controller(config: pytest.Config) -> bool:
    """Does this process hand its items to workers?"""
    distributes = bool(config.getoption("tx", None)) and config.getoption("dist", "no") != "no"
    return distributes and not config.option.collectonly and not is_worker(config)


def check_devices(config: pytest.Config, devices: tuple[str, ...]) -> None:
    """Raises SettingsError where several devices have no workers to share them out to."""
    if len(devices) > 1 and not (is_worker(config) or is_controller(config) or config.option.collectonly):
        value = ",".join(devices)
        raise SettingsError(
            "--probe-device", value, f"several devices need workers: add -n {len(devices)}, or give one device"
        )


class Controller:
    """The side of a distributed run that hands out devices and hears of workers that die."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._held: dict[Any, str] = {}
        self._unexplained = 0
        self._died: pytest.TestReport | None = None
        # A record that kills its worker must not end the run: xdist's own cap would leave items unrun.
        if probe.config.getoption("maxworkerrestart", None) is None:
            probe.config.option.maxworkerrestart = str(2**31)
        self._limit = IDLE_DEATHS * len(probe.config.getoption("tx"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if self._probe.carried_gate is not None:
            node.workerinput["probe_gate"] = self._probe.carried_gate
        devices = self._probe.settings.devices
        if devices:
            held = list(self._held.values())
            self._held[node] = node.workerinput["probe_device"] = min(devices, key=held.count)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        self._held.pop(node, None)
        if error is None:
            return
        self._unexplained += 1
        if self._unexplained > self._limit:
            pytest.exit(f"{self._unexplained} workers died without an item to blame; run without -n to see why", 3)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        self._unexplained -= 1
        node: Any = getattr(report, "node", None)
        path, name = self._probe.of_item(crashitem)
        crashed = PortableId.parse(f"{path}::{name}")
        if not self._probe.is_dump(path) and not (path.suffix != ".py" and self._probe.recognises(path)):
            return
        device = node.workerinput.get("probe_device")
        command = self._probe.command(path, crashed.name, crashed.dtype or None, device)
        report.location = (str(path), None, f"{crashed.name} ")
        report.longrepr = f"{crashed.name}{f' on {device}' if device else ''}: {DIED}\nto reproduce: {command}"
        died = Result.of(
            Verdict("error", "", DIED),
            PortableId(self._probe.label(path), crashed.entry, crashed.dtype),
            api=crashed.api,
            direction=crashed.direction,
            dtype=crashed.dtype,
            device=self._probe.name_of(device, self._probe.framework_of(path)),
            duration=0.0,
        )
        report.probe = msgspec.to_builtins(died)  # type: ignore[attr-defined]
        report.user_properties = list(properties(died))
        # What reads reports knows the run of an item, and its teardown.
        report.when, self._died = "call", report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        yield
        if report is self._died and report.failed:
            self._probe.config.hook.pytest_runtest_logreport(report=_end_of(report))


def _end_of(died: pytest.TestReport) -> pytest.TestReport:
    """The teardown that a dead worker cannot report, without which junit shows no properties and others no item."""
    end = pytest.TestReport(died.nodeid, died.location, died.keywords, "passed", None, "teardown")
    end.user_properties = died.user_properties
    end.node = died.node  # type: ignore[attr-defined]
    return end
