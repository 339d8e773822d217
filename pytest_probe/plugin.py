"""pytest's hooks and nothing else. Nothing heavy is imported before a run probes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_probe import options

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from pytest_probe.state import Probe

MARKER = (
    "probe(api, namespace, direction, dtype): a recorded API call that pytest-probe checks; "
    "select with -m \"probe(api='linear')\". dtype can be selected by as well."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.register(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_probe import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if not config.option.help and _may_probe(config):
        from pytest_probe.errors import SettingsError

        try:
            _configure(config)
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None


def _paths_given(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.ARGS


def _may_probe(config: pytest.Config) -> bool:
    """Cheaply: could there be a dump to check?"""
    if config.getoption("probe_dump") or config.getini("probe_dump") or config.getini("probe_collect"):
        return True
    return _paths_given(config) and any(_is_data_file(arg) for arg in config.args)


def _is_data_file(arg: str) -> bool:
    path = arg.split("::")[0]
    return not path.endswith(".py") and os.path.isfile(path)


def _configure(config: pytest.Config) -> None:
    from pytest_probe import settings, workers
    from pytest_probe.registry import Registry
    from pytest_probe.state import Probe

    positional = list(config.args) if _paths_given(config) else []
    message = settings.passed_over(config, positional)
    if message:
        raise pytest.UsageError(message)
    parsed = settings.parse(config, paths_given=bool(positional))
    registry = Registry.default()
    registry.namespaces.update(parsed.namespaces)
    config.hook.pytest_probe_register.call_historic(kwargs={"registry": registry})
    settings.check_name("--probe-standard", parsed.standard, registry.standards)
    workers.check_devices(config, parsed.devices)
    probe = Probe(config, parsed, registry, positional)
    if not (probe.dumps or parsed.collect):
        return
    _extend_args(config, probe)
    config.pluginmanager.register(Collection(probe), "probe-collection")
    if not workers.is_worker(config):
        from pytest_probe.reporting import Reporting

        config.pluginmanager.register(Reporting(probe), "probe-reporting")
    if workers.is_controller(config):
        config.pluginmanager.register(workers.Controller(probe), "probe-controller")


def _extend_args(config: pytest.Config, probe: Probe) -> None:
    """Let pytest collect the dumps of --probe-dump: alone, or beside the paths that the user gave."""
    dumps = [str(path) for path in probe.asked]
    if dumps and not _paths_given(config):
        config.args[:] = dumps
    else:
        config.args += [path for path in dumps if path not in config.args]


class Collection:
    """In every process of a run that probes: collects dumps, completes the reports of their items."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if not (file_path in self._probe.dumps or self._is_found(file_path)):
            return None
        from pytest_probe.items import ProbeFile

        return ProbeFile.of(self._probe, file_path, parent)

    def _is_found(self, path: Path) -> bool:
        return self._probe.settings.collect and path.suffix != ".py" and self._probe.recognises(path)

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        from pytest_probe.items import NoticeItem

        if isinstance(item, NoticeItem) and not item.shares_run_with(nextitem):
            self._probe.release()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        from pytest_probe.items import NoticeItem

        report = yield
        if isinstance(item, NoticeItem):
            item.complete(report, call)
        return report
