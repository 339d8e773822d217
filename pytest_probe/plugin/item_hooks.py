"""The hooks of our items, with pytest's logging plugin and its capture of output left out where nobody needs them.

This is the one place where pytest's own way was too slow. `python benchmarks/workers_speed.py`, 3,220 items that pass
in one process: pytest's own way took 1.23 times the CPU time, 0.33 ms more an item. The logging plugin adds two
handlers to the root and to each logger that does not propagate, and removes them, three times an item; torch has 42
such loggers. Here one handler is added once. `Node.ihook` looks at the item's path at each access.

It relies on `PytestPluginManager.subset_hook_caller` of pluggy, on the names "logging-plugin" and "capturemanager" of
pytest's plugins, and on the attribute `formatter` of the former: pytest 8.0 to 9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

_PHASES = {"pytest_runtest_setup": "setup", "pytest_runtest_call": "call", "pytest_runtest_teardown": "teardown"}
_LOGGING, _CAPTURE = "logging-plugin", "capturemanager"
# Where one of these is set, pytest's plugin does more than to keep what is logged, and stays.
_OPTIONS = ("log_level", "log_cli_level", "log_file", "log_file_level")
# Whose plugins print nothing while an item is set up and torn down, by their modules.
_SILENT = ("_pytest.", "pytest_probe.", "xdist.")


class _Logs(logging.Handler):
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
        """A message that cannot be formatted fails its item, as with pytest's plugin."""
        if logging.raiseExceptions:
            raise

    def begin(self) -> None:
        # A framework that is imported meanwhile adds loggers, so that their number changes.
        if len(logging.root.manager.loggerDict) != self._known:
            known = list(logging.root.manager.loggerDict.values())
            self._known = len(known)
            apart = (logger for logger in known if isinstance(logger, logging.Logger) and not logger.propagate)
            for logger in (logging.root, *apart):
                logger.addHandler(self)
                self._attached.add(logger)
        self._lines = []

    def end(self, item: pytest.Item, when: str) -> None:
        lines, self._lines = self._lines, None
        if lines:
            item.add_report_section(when, "log", "\n".join(lines).strip())

    def detach(self) -> None:
        for logger in self._attached:
            logger.removeHandler(self)


class _Phase:
    """One of pytest's hooks for an item, called without its logging plugin."""

    def __init__(self, hook: Callable[..., object], logs: _Logs, when: str) -> None:
        self._hook, self._logs, self._when = hook, logs, when

    def __call__(self, *, item: pytest.Item, **kwargs: object) -> object:
        self._logs.begin()
        try:
            return self._hook(item=item, **kwargs)
        finally:
            self._logs.end(item, self._when)


class _Teardown:
    """Captures output where more than the item ends: fixtures of other items may print then."""

    def __init__(self, usual: Callable[..., object], quiet: Callable[..., object]) -> None:
        self._usual, self._quiet = usual, quiet

    def __call__(self, *, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        alone = nextitem is not None and nextitem.parent is item.parent
        return (self._quiet if alone else self._usual)(item=item, nextitem=nextitem)


_CAPTURED: Mapping[str, Callable[..., Any]] = {
    "pytest_runtest_setup": lambda usual, quiet: quiet,
    "pytest_runtest_teardown": _Teardown,
}


class _Hooks:
    """A relay of hooks in which some leave a plugin out. Output is not captured where nobody prints: in setups, and in
    teardowns of an item alone, if no other plugin takes part in them."""

    def __init__(self, relay: Any, plugins: pytest.PytestPluginManager, logs: _Logs) -> None:
        self._relay, self._plugins, self._logs = relay, plugins, logs

    def __getattr__(self, name: str) -> Any:
        hook = getattr(self._relay, name)
        if name in _PHASES:
            out = [self._plugins.get_plugin(_LOGGING)]
            hook = self._less(hook, out)
            if name in _CAPTURED and all(each.function.__module__.startswith(_SILENT) for each in hook.get_hookimpls()):
                hook = _CAPTURED[name](hook, self._less(hook, [*out, self._plugins.get_plugin(_CAPTURE)]))
            hook = _Phase(hook, self._logs, _PHASES[name])
        self.__dict__[name] = hook
        return hook

    def _less(self, hook: Any, plugins: Sequence[object]) -> Any:
        """The hook without these plugins, and without the ones that the relay leaves out."""
        kept = {implementation.plugin for implementation in hook.get_hookimpls()}
        every = getattr(self._plugins.hook, hook.name).get_hookimpls()
        others = {implementation.plugin for implementation in every} - kept
        return self._plugins.subset_hook_caller(hook.name, [*others, *plugins])


class ItemHooks:
    """Gives items their hooks. settled: no conftest is loaded any more, so that all items under one parent have the
    same."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._logs = _logs_of(config)
        self._usual: _Hooks | None = None
        self.settled = False
        self._last: tuple[object, Any] = (None, None)

    def of(self, parent: pytest.Collector) -> Any:
        if self._last[0] is not parent or not self.settled:
            relay: Any = parent.ihook
            # Those of a folder with conftests next to it are made anew, as pytest makes them.
            usual = relay is self._plugins.hook
            if self._logs is not None:
                relay = self._usual if usual and self._usual else _Hooks(relay, self._plugins, self._logs)
                self._usual = relay if usual else self._usual
            self._last = parent, relay
        return self._last[1]


def _logs_of(config: pytest.Config) -> _Logs | None:
    """None where pytest's plugin is asked for more, or is not there."""
    formatter: logging.Formatter | None = getattr(config.pluginmanager.get_plugin(_LOGGING), "formatter", None)
    if formatter is None or config.getini("log_cli"):
        return None
    if any(config.getoption(name) or config.getini(name) for name in _OPTIONS):
        return None
    logs = _Logs(formatter)
    config.add_cleanup(logs.detach)
    return logs
