"""What calls log, kept for the report of their item, without pytest's own plugin for it.

That attaches handlers to the root and to each logger that does not propagate, and takes them off again, six times an
item: torch has 42 of them.

Ours are attached once. Where an option of logging is set, pytest's plugin stays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PHASES = {"pytest_runtest_setup": "setup", "pytest_runtest_call": "call", "pytest_runtest_teardown": "teardown"}
PYTESTS = "logging-plugin"
# Where one of these is set, pytest's plugin does more than to keep what is logged.
OPTIONS = ("log_level", "log_cli_level", "log_file", "log_file_level")


class Logs(logging.Handler):
    """Attached once, to the root and to all loggers that do not propagate; keeps text while an item runs."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines: list[str] | None = None
        self._attached: set[logging.Logger] = set()
        self._known = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._lines is None:
            return
        try:
            self._lines.append(self.format(record))
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """A message that cannot be formatted fails its item, as pytest has it."""
        if logging.raiseExceptions:
            raise

    def begin(self) -> None:
        # As long as a set, so that a framework that is imported meanwhile is noticed.
        if len(logging.root.manager.loggerDict) != self._known:
            self._attach()
        self._lines = []

    def end(self, item: pytest.Item, when: str) -> None:
        lines, self._lines = self._lines, None
        if lines:
            item.add_report_section(when, "log", "\n".join(lines).strip())

    def _attach(self) -> None:
        known = list(logging.root.manager.loggerDict.values())
        self._known = len(known)
        apart = (logger for logger in known if isinstance(logger, logging.Logger) and not logger.propagate)
        for logger in (logging.root, *apart):
            logger.addHandler(self)
            self._attached.add(logger)

    def detach(self) -> None:
        for logger in self._attached:
            logger.removeHandler(self)


class Phase:
    """One of pytest's hooks around an item, called without its plugin."""

    def __init__(self, hook: Callable[..., object], logs: Logs, when: str) -> None:
        self._hook, self._logs, self._when = hook, logs, when

    def __call__(self, *, item: pytest.Item, **kwargs: object) -> object:
        self._logs.begin()
        try:
            return self._hook(item=item, **kwargs)
        finally:
            self._logs.end(item, self._when)


def logs_of(config: pytest.Config) -> Logs | None:
    """None where pytest's plugin is asked for more."""
    formatter: logging.Formatter | None = getattr(config.pluginmanager.get_plugin(PYTESTS), "formatter", None)
    if formatter is None or config.getini("log_cli"):
        return None
    if any(config.getoption(name) or config.getini(name) for name in OPTIONS):
        return None
    logs = Logs(formatter)
    config.add_cleanup(logs.detach)
    return logs
