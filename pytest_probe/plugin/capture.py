"""`--probe-capture`: what a test run calls, as a dump."""

from __future__ import annotations

import functools
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

from pytest_probe.capture.debugger import PrecisionDebugger
from pytest_probe.capture.folder import FolderTaken, check_usable
from pytest_probe.capture.writer import Outcome
from pytest_probe.errors import FrameworkTooOld, SettingsError, Unsupported
from pytest_probe.plugin.command_line import usage_error
from pytest_probe.plugin.run_end import fail, unwritten
from pytest_probe.plugin.xdist import is_controller, is_worker


class _ErrorMessages(logging.Handler):
    """Keeps what the capture says went wrong."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage().removeprefix("pytest-probe: "))


class _Capture:
    """A plugin that records a whole test run, each process of it into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.debugger = PrecisionDebugger(dump_path=folder)
        self._processes: list[Outcome] = []
        self._trouble = _ErrorMessages()
        logging.getLogger("pytest_probe").addHandler(self._trouble)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not is_controller(session.config):
            self.debugger.start()

    # Innermost, like the hook of Reporting.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            self._trouble.messages.append(unwritten(session.config, error))
        outcome = self.debugger.finish()
        logging.getLogger("pytest_probe").removeHandler(self._trouble)
        if is_worker(session.config):
            output = {"troubles": self._trouble.messages, "outcome": astuple(outcome)}
            session.config.workeroutput["probe_capture"] = output  # type: ignore[attr-defined]
            return
        self._processes.append(outcome)
        if self._trouble.messages:
            fail(session)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {}).get("probe_capture")
        if output is not None:
            self._trouble.messages += output["troubles"]
            self._processes.append(Outcome(*output["outcome"]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found = [outcome for outcome in self._processes if outcome.entries]
        what = self._recorded(found) if found else "no API call was recorded"
        terminalreporter.write_line(f"probe: {what}", yellow=not found)
        if missed := functools.reduce(Outcome.with_process, self._processes, Outcome()).missed():
            terminalreporter.write_line(f"probe: {missed}", yellow=True)
        for trouble in self._trouble.messages:
            terminalreporter.write_line(f"probe: {trouble}", red=True)

    def _recorded(self, found: list[Outcome]) -> str:
        total = functools.reduce(Outcome.with_process, found)
        processes = "" if len(found) < 2 else f" in {len(found)} processes"
        return f"recorded {total.recorded()}{processes}, {total.cost()}: {self._folder}"


def configure(config: pytest.Config, folder: str, others: list[str]) -> None:
    """Register the capture. Raises UsageError where another option asks for a check."""
    if others:
        asked = ", ".join(others)
        raise pytest.UsageError(
            f"--probe-capture: {folder!r} cannot be used together with {asked}; record in one run and check in another"
        )
    try:
        capture = _Capture(config.invocation_params.dir / folder)
        if not is_worker(config):
            check_usable("--probe-capture", str(config.invocation_params.dir / folder))
            capture.debugger.recorder.take_folder()
    except (FrameworkTooOld, Unsupported) as error:
        raise pytest.UsageError(f"--probe-capture: {error}") from None
    except FolderTaken as error:
        raise pytest.UsageError(str(FolderTaken("--probe-capture", folder, error.found, "remove it"))) from None
    except SettingsError as error:
        raise usage_error(config, error) from None
    config.pluginmanager.register(capture, "probe-capture")
