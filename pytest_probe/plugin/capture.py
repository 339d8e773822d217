"""`--probe-capture`: what a test run calls, as a dump."""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_probe.capturing.debugger import PrecisionDebugger
from pytest_probe.errors import FrameworkTooOld, Unsupported
from pytest_probe.plugin.disk import fail, unwritten
from pytest_probe.plugin.xdist import is_controller, is_worker


class _Kept(logging.Handler):
    """Keeps what the capture says went wrong."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage().removeprefix("pytest-probe: "))


class Capture:
    """A plugin that records a whole test run, each process of it into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._debugger = PrecisionDebugger(dump_path=folder)
        self._trouble = _Kept()
        logging.getLogger("pytest_probe").addHandler(self._trouble)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not is_controller(session.config):
            self._debugger.start()

    # Innermost, as the one of Reporting.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            self._trouble.messages.append(unwritten(session.config, error))
        self._debugger.close()
        logging.getLogger("pytest_probe").removeHandler(self._trouble)
        if is_worker(session.config):
            session.config.workeroutput["probe_capture"] = self._trouble.messages  # type: ignore[attr-defined]
        elif self._trouble.messages:
            fail(session)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._trouble.messages += getattr(node, "workeroutput", {}).get("probe_capture", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found = sorted(self._folder.glob("step*/*/dump.json"))
        processes = "" if len(found) < 2 else f" of {len(found)} processes"
        what = f"recorded the API calls{processes}: {self._folder}" if found else "no API call was recorded"
        terminalreporter.write_line(f"probe: {what}")
        for trouble in self._trouble.messages:
            terminalreporter.write_line(f"probe: {trouble}", red=True)


def configure(config: pytest.Config, folder: str, others: list[str]) -> None:
    """Register the capture. Raises UsageError where another option asks for a check."""
    if others:
        asked = ", ".join(others)
        raise pytest.UsageError(
            f"--probe-capture: {folder!r} cannot be used beside {asked}; record in one run, check in another"
        )
    try:
        capture = Capture(config.invocation_params.dir / folder)
    except (FrameworkTooOld, Unsupported) as error:
        raise pytest.UsageError(f"--probe-capture: {error}") from None
    config.pluginmanager.register(capture, "probe-capture")
