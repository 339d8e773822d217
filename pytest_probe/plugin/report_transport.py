"""The reports of an item on their way from a worker of pytest-xdist to the controller: one message in place of five.

A setup and a teardown that passed and say nothing stay behind, with the item's start and end; the controller makes them
anew around the report of the call. The reason is what a message costs: both processes convert it in Python, and it
wakes a thread. `python benchmarks/workers_speed.py --then CHECKOUT`, 3,220 items with -n 2: 19.3 s of CPU
with pytest-xdist's own way, 16.8 s with this (medians of six runs in turn, on a busy machine), 13 % of an item. To send
what is left as one string of bytes would save 0.085 ms an item, 2 %.

It relies on one thing of pytest-xdist's, seen in 3.8: its plugin that sends has an attribute `channel`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal

import pytest

_START, _REPORT, _FINISH = "pytest_runtest_logstart", "pytest_runtest_logreport", "pytest_runtest_logfinish"
_PHASES = ["setup", "call", "teardown"]
# What of a setup and a teardown travels with the report of the call, and as what.
_AROUND = "probe_around"
_OWN = ("duration", "start", "stop", "probe_share")
_USUAL = vars(pytest.TestReport("", ("", None, ""), {}, "passed", None, "setup")).keys() | _OWN
# What pytest-xdist adds to each report in the controller.
_OF_WORKER = ("node", "item_index", "worker_id", "testrun_uid")


def _sender(config: pytest.Config) -> Any | None:
    """The plugin that sends what a worker reports; None in other processes."""
    if not hasattr(config, "workerinput"):
        return None
    return next((each for each in config.pluginmanager.get_plugins() if hasattr(each, "channel")), None)


def held_hooks(config: pytest.Config) -> Mapping[str, object]:
    """The hooks of our items of which the sender hears when the item has ended, with the sender. With -v it hears at
    once that an item begins, since a user looks for the one that takes so long."""
    names = (_REPORT, _FINISH) if config.option.verbose > 0 else (_START, _REPORT, _FINISH)
    sender = _sender(config)
    return {} if sender is None else dict.fromkeys(names, sender)


def register(config: pytest.Config, *, controls: bool) -> None:
    """In a worker, and in the process that controls them."""
    held = held_hooks(config)
    if held:
        config.pluginmanager.register(_InWorker(held), "probe-transport")
    elif controls:
        config.pluginmanager.register(_InController(config), "probe-transport")


class _InWorker:
    """Lets the sender hear of an item when it has ended, also where the run stops before that."""

    def __init__(self, held: Mapping[str, object]) -> None:
        self._sender: Any = held[_REPORT]
        self._started = _START not in held
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        from pytest_probe.plugin.items import NoticeItem

        self._reports = []
        try:
            return (yield)
        finally:
            if isinstance(item, NoticeItem):
                self._send(item, self._reports)

    def _send(self, item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
        where = {"nodeid": item.nodeid, "location": item.location}
        alone = call_alone(reports, started=self._started)
        if not (alone or self._started):
            self._sender.pytest_runtest_logstart(**where)
        for report in alone or reports:
            self._sender.pytest_runtest_logreport(report=report)
        if not alone:
            self._sender.pytest_runtest_logfinish(**where)


class _InController:
    """Reports what stayed behind, before and after the call."""

    def __init__(self, config: pytest.Config) -> None:
        self._hook = config.hook

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        around = vars(report).pop(_AROUND, None)
        if around is None:
            yield
            return
        where = {"nodeid": report.nodeid, "location": report.location}
        if not around["started"]:
            self._hook.pytest_runtest_logstart(**where)
        self._hook.pytest_runtest_logreport(report=passed(report, "setup", **around["setup"]))
        yield
        self._hook.pytest_runtest_logreport(report=passed(report, "teardown", **around["teardown"]))
        self._hook.pytest_runtest_logfinish(**where)


def call_alone(reports: Sequence[pytest.TestReport], *, started: bool) -> list[pytest.TestReport]:
    """The call's report, with what is needed of the others; nothing where one of the others says something."""
    if [report.when for report in reports] != _PHASES:
        return []
    setup, call, teardown = reports
    if not (_says_nothing(setup, []) and _says_nothing(teardown, call.user_properties)):
        return []
    add_phases(call, started=started)
    for each in (setup, teardown):
        vars(call)[_AROUND][each.when] = {key: vars(each)[key] for key in _OWN if hasattr(each, key)}
    return [call]


def add_phases(call: pytest.TestReport, *, started: bool) -> None:
    """Let a call's report bring those of a setup and a teardown with it, which passed. started: has the controller
    heard that the item began?"""
    vars(call)[_AROUND] = {"started": started, "setup": {}, "teardown": {}}


def _says_nothing(report: pytest.TestReport, properties: Sequence[tuple[str, object]]) -> bool:
    """Did it pass, and did no plugin add anything?"""
    silent = report.passed and not report.sections and list(report.user_properties) == list(properties)
    return silent and vars(report).keys() <= _USUAL


def passed(call: pytest.TestReport, when: Literal["setup", "teardown"], **own: Any) -> pytest.TestReport:
    """The report of a phase that passed, made from the call's."""
    # junit takes an item's properties from its last report.
    properties = call.user_properties if when == "teardown" else []
    more = {key: vars(call)[key] for key in _OF_WORKER if hasattr(call, key)} | own
    return pytest.TestReport(
        call.nodeid, call.location, call.keywords, "passed", None, when, user_properties=properties, **more
    )
