"""Fixtures for a project's own tests. Nothing heavy is imported before a test asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_probe.plugin.checks import ProbeCase, ProbeFixture
    from pytest_probe.plugin.session import ProcessSession


@pytest.fixture
def probe(request: pytest.FixtureRequest) -> Generator[ProbeFixture, None, None]:
    """Checks functions of your own against a float64 reference: `probe.tensor(...)`, `probe.check(...)`."""
    from pytest_probe.plugin.checks import ProbeFixture

    state = _state_for_tests(request.config)
    yield ProbeFixture(state, request.node)
    state.release()


@pytest.fixture
def probe_case(request: pytest.FixtureRequest) -> Generator[ProbeCase, None, None]:
    """One record of the dump that `@pytest.mark.probe(dump=...)` names: `args`, `kwargs`, `record`, `check(output)`."""
    from pytest_probe.plugin.checks import ProbeCase

    if not hasattr(request, "param"):
        pytest.fail("probe_case: the test needs @pytest.mark.probe(dump=..., api=...)", pytrace=False)
    state = _state_for_tests(request.config)
    yield ProbeCase.prepared(state, request.node, request.param)
    state.release()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `probe` becomes one item a matching record."""
    mark = metafunc.definition.get_closest_marker("probe")
    if mark is None:
        return
    from pytest_probe.plugin.marker import parameters

    if "probe_case" not in metafunc.fixturenames:
        raise pytest.Collector.CollectError(f"{metafunc.function.__name__} is marked probe but takes no probe_case")
    found = parameters(metafunc.config, mark, metafunc.definition.path.parent)
    metafunc.parametrize("probe_case", found, indirect=True)


def _state_for_tests(config: pytest.Config) -> ProcessSession:
    from pytest_probe.model.run import RECORDED
    from pytest_probe.plugin.session import state_of

    trouble = _trouble(config)
    if trouble:
        pytest.fail(trouble, pytrace=False)
    state = state_of(config)
    if state.device_name == RECORDED:
        pytest.skip(f"--probe-device={RECORDED} leaves no device for functions of your own")
    if not config.pluginmanager.has_plugin("probe-checks"):
        config.pluginmanager.register(Completion(), "probe-checks")
    return state


def _trouble(config: pytest.Config) -> str:
    """What is wrong with the settings, or with the device that they name."""
    from pytest_probe.errors import ProbeError
    from pytest_probe.plugin.session import state_of

    try:
        _ = state_of(config).checker.engines.device
    except ProbeError as error:
        return str(error)
    return ""


class Completion:
    """Gives the report of a test the results of its checks."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        from pytest_probe.plugin.checks import complete, hide_own_frames

        if call.when == "call" and not item.config.option.fulltrace:
            hide_own_frames(call)
        report = yield
        complete(item, report, call)
        return report


class Waiting:
    """Stands for the reporting of a run in which no option of the probe was given, until a test reports a check."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._finished = 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "probe"):
            self._finished += report.when in ("teardown", "???")
            return
        from pytest_probe.plugin.reporting import Reporting
        from pytest_probe.plugin.session import state_of

        manager = self._config.pluginmanager
        manager.unregister(self)
        reporting = Reporting(state_of(self._config))
        reporting.join(self._session, self._finished)
        manager.register(reporting, "probe-reporting")
        reporting.pytest_runtest_logreport(report)  # the call under way does not reach what is registered during it
