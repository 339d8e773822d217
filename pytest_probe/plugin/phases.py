"""The reports of an item's three phases between two processes: a setup and a teardown that say nothing stay behind.

pytest-xdist sends six messages an item, each of which wakes a thread of the controller. Two of them remain: the report
of the call, and that the item has ended.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from pytest_probe.plugin import packing

_START = "pytest_runtest_logstart"
NAME = "probe-phases"
_PHASES = ["setup", "call", "teardown"]
# What of a setup or teardown travels with the call's report, and as what.
_AROUND = "probe_around"
_OWN = ("duration", "start", "stop", "probe_share")
_USUAL = vars(pytest.TestReport("", ("", None, ""), {}, "passed", None, "setup")).keys() | {*_OWN, packing.MARK}
# What pytest-xdist adds to each report in the controller.
_OF_WORKER = ("node", "item_index", "worker_id", "testrun_uid")


def shortened(reports: Sequence[pytest.TestReport], *, started: bool = False) -> Sequence[pytest.TestReport]:
    """The call's report alone where the others say nothing, else all. started: logstart was called before."""
    if [report.when for report in reports] != _PHASES:
        return reports
    setup, call, teardown = reports
    if not (_says_nothing(setup, []) and _says_nothing(teardown, call.user_properties)):
        return reports
    frame(call, started=started)
    for each in (setup, teardown):
        _around(call)[str(each.when)] |= {key: vars(each)[key] for key in _OWN if hasattr(each, key)}
    return [call]


def frame(call: pytest.TestReport, *, started: bool = False) -> None:
    """Let a call's report bring those of a setup and a teardown with it, which passed."""
    setattr(call, _AROUND, {"started": started, "setup": {}, "teardown": {}})


def _is_framed(report: pytest.TestReport) -> bool:
    return hasattr(report, _AROUND)


def tell(listener: Any, item: pytest.Item, reports: Sequence[pytest.TestReport], *, started: bool = False) -> None:
    """Call a listener's hooks for an item with these reports; framed ones bring its start and its end with them.
    started: logstart was called before."""
    if not reports:  # of other items, and of one that a plugin ran without reporting it
        return
    where = {"nodeid": item.nodeid, "location": item.location}
    framed = _is_framed(reports[0])
    if not (framed or started):
        listener.pytest_runtest_logstart(**where)
    for report in reports:
        listener.pytest_runtest_logreport(report=report)
    if not framed:
        listener.pytest_runtest_logfinish(**where)


def tell_share(last: pytest.TestReport, share: float) -> None:
    """With an item's last report, which share of the run's estimated cost the item was."""
    own = _around(last)["teardown"] if _is_framed(last) else vars(last)
    own["probe_share"] = share


def _around(call: pytest.TestReport) -> dict[str, Any]:
    found: dict[str, Any] = vars(call)[_AROUND]
    return found


def _says_nothing(report: pytest.TestReport, properties: Sequence[tuple[str, object]]) -> bool:
    """Did it pass, and did no plugin add anything?"""
    silent = report.passed and not report.sections and list(report.user_properties) == list(properties)
    return silent and vars(report).keys() <= _USUAL


def _phase_beside(call: pytest.TestReport, when: str, **own: Any) -> pytest.TestReport:
    """The report of a setup or teardown that passed, made from the call's."""
    extra = {key: vars(call)[key] for key in _OF_WORKER if hasattr(call, key)}
    # junit takes an item's properties from its last report.
    properties = call.user_properties if when == "teardown" else []
    return pytest.TestReport(
        call.nodeid,
        call.location,
        call.keywords,
        "passed",
        None,
        when,  # type: ignore[arg-type]
        user_properties=properties,
        **{**extra, **own},
    )


def sender_of(config: pytest.Config) -> Any | None:
    """pytest-xdist's plugin that sends what a worker reports. It has no name of its own."""
    plugins = config.pluginmanager.get_plugins()
    return next((each for each in plugins if type(each).__name__ == "WorkerInteractor"), None)


def told_later(config: pytest.Config) -> dict[str, object]:
    """By the names of hooks the plugin of pytest-xdist's that hears of our items from `InWorker` only. With -v it
    hears at once that an item begins, since a user looks for the one that takes so long."""
    sender = sender_of(config) if config.pluginmanager.has_plugin(NAME) else None
    names = ["pytest_runtest_logreport", "pytest_runtest_logfinish"]
    return {} if sender is None else dict.fromkeys(names if is_shown(config) else [*names, _START], sender)


def is_shown(config: pytest.Config) -> bool:
    """Does the terminal say when an item begins?"""
    return bool(config.option.verbose > 0)


class InWorker:
    """Tells pytest-xdist of our items when they end."""

    def __init__(self, config: pytest.Config) -> None:
        self._sender: Any = sender_of(config)
        self._started = is_shown(config)
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if packing.is_marked(report):
            self._reports.append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Also where the run stops before the item's end."""
        try:
            return (yield)
        finally:
            reports, self._reports = self._reports, []
            tell(self._sender, item, shortened(reports, started=self._started), started=self._started)


class InController:
    """Reports what stayed behind, before and after the call."""

    def __init__(self, config: pytest.Config) -> None:
        self._hook = config.hook

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        around = vars(report).pop(_AROUND, None)
        if around is None:
            return (yield)
        where = {"nodeid": report.nodeid, "location": report.location}
        if not around["started"]:
            self._hook.pytest_runtest_logstart(**where)
        self._hook.pytest_runtest_logreport(report=_phase_beside(report, "setup", **around["setup"]))
        yield
        self._hook.pytest_runtest_logreport(report=_phase_beside(report, "teardown", **around["teardown"]))
        self._hook.pytest_runtest_logfinish(**where)
