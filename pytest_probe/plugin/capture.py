"""`--probe-capture`: what a test run calls, as a dump."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.capturing.debugger import PrecisionDebugger
from pytest_probe.errors import Unsupported
from pytest_probe.plugin.xdist import is_controller


class Capture:
    """A plugin that records a whole test run, each process of it into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._debugger = PrecisionDebugger(dump_path=folder)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not is_controller(session.config):
            self._debugger.start()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._debugger.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found = sorted(self._folder.glob("step*/*/dump.json"))
        processes = "" if len(found) < 2 else f" of {len(found)} processes"
        what = f"recorded the API calls{processes}: {self._folder}" if found else "no API call was recorded"
        terminalreporter.write_line(f"probe: {what}")


def configure(config: pytest.Config, folder: str, others: list[str]) -> None:
    """Register the capture. Raises UsageError where another option asks for a check."""
    if others:
        asked = ", ".join(others)
        raise pytest.UsageError(
            f"--probe-capture: {folder!r} cannot be used beside {asked}; record in one run, check in another"
        )
    try:
        capture = Capture(config.invocation_params.dir / folder)
    except Unsupported as error:
        raise pytest.UsageError(f"--probe-capture: {error}") from None
    config.pluginmanager.register(capture, "probe-capture")
