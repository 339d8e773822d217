"""A setup and a teardown that say nothing do not travel, and are there again in the controller."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.plugin import report_transport
from pytest_probe.plugin.report_transport import add_phases, call_alone

PROPERTIES = [("probe.max_ulp", 1.5)]
NODE = SimpleNamespace(gateway=None)


def made(when: Any, *, outcome: Any = "passed", duration: float = 0.25, **more: Any) -> pytest.TestReport:
    report = pytest.TestReport(
        "dump.json::a", ("dump.json", 3, "a "), {"a": 1}, outcome, None, when, duration=duration, start=1.0, stop=2.0
    )
    report.user_properties = [] if when == "setup" else [*PROPERTIES]
    vars(report).update(more)
    return report


def three() -> list[pytest.TestReport]:
    return [made("setup", duration=0.125), made("call"), made("teardown", duration=0.5, probe_share=0.1)]


class Listening:
    """What the plugins of a controller hear."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.heard.append(("start", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.heard.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.heard.append(("finish", nodeid))


@pytest.fixture
def heard() -> Callable[..., list[Any]]:
    """What is heard where these reports arrive."""

    def listen(*reports: pytest.TestReport) -> list[Any]:
        plugins = pytest.PytestPluginManager()
        listening = Listening()
        plugins.register(listening)
        config: Any = SimpleNamespace(hook=plugins.hook, pluginmanager=plugins)
        config.option = SimpleNamespace(verbose=0)
        report_transport.register(config, controls=True)
        for report in reports:
            plugins.hook.pytest_runtest_logreport(report=report)
        return listening.heard

    return listen


def test_what_stayed_behind_is_reported_around_the_call(heard: Callable[..., list[Any]]) -> None:
    setup, call, teardown = three()
    sent = call_alone([setup, call, teardown], started=False)
    assert sent == [call]
    vars(call).update(node=NODE, worker_id="gw0", item_index=4, testrun_uid="u")
    start, before, during, after, finish = heard(*sent)
    assert (start, finish) == (("start", "dump.json::a"), ("finish", "dump.json::a"))
    assert during is call
    assert not hasattr(call, "probe_around")
    for found, expected in ((before, setup), (after, teardown)):
        vars(expected).update(node=NODE, worker_id="gw0", item_index=4, testrun_uid="u")
        assert vars(found) == vars(expected)


def test_what_has_begun_does_not_begin_again(heard: Callable[..., list[Any]]) -> None:
    found = heard(*call_alone(three(), started=True))
    assert [getattr(each, "when", each) for each in found] == ["setup", "call", "teardown", ("finish", "dump.json::a")]


@pytest.mark.parametrize(
    "reports",
    [
        [made("setup", outcome="failed"), made("teardown")],
        [made("setup", sections=[("Captured stdout setup", "text")]), made("call"), made("teardown")],
        [made("setup"), made("call"), made("teardown", outcome="failed")],
        [made("setup"), made("call"), made("teardown", extras=["of pytest-html"])],
        [made("setup"), made("call"), made("teardown", user_properties=[("from", "a hook of the user's")])],
        [made("setup"), made("call", outcome="rerun"), made("setup"), made("call"), made("teardown")],
    ],
    ids=["setup failed", "setup printed", "teardown failed", "more in it", "other properties", "again"],
)
def test_all_that_say_something_travel(heard: Callable[..., list[Any]], reports: list[pytest.TestReport]) -> None:
    assert call_alone(reports, started=False) == []
    assert heard(*reports) == reports


def test_a_call_that_failed_needs_no_others() -> None:
    setup, _, teardown = three()
    failed = made("call", outcome="failed")
    assert call_alone([setup, failed, teardown], started=False) == [failed]


def test_a_death_has_the_phases_that_its_process_cannot_report(heard: Callable[..., list[Any]]) -> None:
    died = made("call", outcome="failed", node=NODE)
    add_phases(died, started=False)
    _, before, during, after, _ = heard(died)
    assert (before.when, before.outcome, before.user_properties) == ("setup", "passed", [])
    assert during is died
    assert (after.when, after.outcome, after.user_properties, after.node) == ("teardown", "passed", PROPERTIES, NODE)
