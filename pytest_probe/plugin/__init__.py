"""pytest's hooks and nothing else. Nothing heavy is imported before a run probes.

In: pytest's configuration. Out: items, their reports, and the files of a run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_probe import options
from pytest_probe.plugin.fixtures import Waiting, probe, probe_case, pytest_generate_tests

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from pytest_probe.plugin.session import ProcessSession

MARKER = (
    "probe(dump, api, direction, dtype): run this test once for each matching record of the dump, with the fixture "
    "probe_case. Items of dumps carry it as probe(api, namespace, direction, dtype): "
    "select with -m \"probe(api='Functional.linear')\", or by 'linear' alone. dtype can be selected by as well."
)
__all__ = ["probe", "probe_case", "pytest_generate_tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    options.register(parser)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    if not hasattr(config, "workerinput") and _may_probe(config):
        workers = getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None)
        for option in options.OPTIONS:
            concerned = option.before_xdist or (workers and option.without_workers)
            if not concerned or not (config.getoption(option.key) or config.getini(option.key)):
                continue
            if workers and option.without_workers:
                from pytest_probe.errors import SettingsError

                value = config.getoption(option.key) or True
                raise pytest.UsageError(str(SettingsError(option.flag, value, option.without_workers)))
            options.imported(option.before_xdist)(config)
    status = yield
    if config.option.help:
        from pytest_probe.plugin.command_line import standards_help

        print(standards_help())
    return status


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_probe.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    given: Any = early_config.known_args_namespace
    if any(getattr(given, option.key) for option in options.OPTIONS if option.cli and option.kind != "flag"):
        from pytest_probe.system.process import paused_gc

        with paused_gc():
            from pytest_probe.plugin import command_line

        command_line.check_spaces(early_config)
    if given.probe_dump or early_config.getini("probe_dump") or any(map(_is_data_file, given.file_or_dir)):
        from pytest_probe.plugin import data_folders

        data_folders.keep_out(early_config)
        # What is timed waits as it does for its user.
        if "time" not in (given.probe_mode or early_config.getini("probe_mode") or ""):
            from pytest_probe.system.process import wait_passively

            wait_passively()
    yield
    # Now that conftests have added theirs.
    if any(arg.startswith("--probe-") for arg in args):
        from pytest_probe.plugin import command_line

        command_line.check_options(parser, args)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    if not _may_probe(config):
        return None
    from pytest_probe.errors import ProbeError
    from pytest_probe.plugin import command_line
    from pytest_probe.plugin.xdist import auto_workers

    try:
        return auto_workers(_probe_of(config))
    except ProbeError as error:
        raise command_line.usage_error(config, error) from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.option.help:
        return
    # pytest 9 has deprecated the public name, and warns of it.
    written: Any = config._inicfg if hasattr(config, "_inicfg") else config.inicfg
    keys = [key for key in written if key.startswith("probe_")]
    if keys:
        from pytest_probe.plugin import command_line

        command_line.check_keys(config, keys)
    for option in options.OPTIONS:
        if option.standalone and (asked := _asked(config, option)):
            options.imported(option.standalone)(config, asked)
    _find_captured(config)
    if folder := config.getoption("probe_capture") or config.getini("probe_capture"):
        from pytest_probe.plugin import capture

        capture.configure(config, folder, [flag for flag in _given(config) if flag != "--probe-capture"])
    elif _may_probe(config):
        from pytest_probe.errors import ProbeError
        from pytest_probe.plugin import command_line
        from pytest_probe.system.process import paused_gc

        try:
            with paused_gc():
                _configure(config)
        except ProbeError as error:
            raise command_line.usage_error(config, error) from None
    elif not hasattr(config, "workerinput"):
        config.pluginmanager.register(Waiting(config), "probe-waiting")


def _asked(config: pytest.Config, option: options.Option[Any]) -> Any:
    """The value of an option that a run has without probing; not a true one where nobody asked for it."""
    from pytest_probe.option_types import Given

    value = config.getoption(option.key)
    try:
        value = config.getini(option.key) if value is None else value
    except (TypeError, ValueError, pytest.UsageError):
        from pytest_probe.errors import SettingsError
        from pytest_probe.plugin import command_line
        from pytest_probe.settings import read_ini

        try:
            value = read_ini(config, option)
        except SettingsError as error:
            raise command_line.usage_error(config, error) from None
    return option.type.read(Given(option.flag, value, config.rootpath, is_set=bool(value)))


def _find_captured(config: pytest.Config) -> None:
    """Ids say `rank0` for a folder `proc1234`, and those of results have the end of a path: turn those of the command
    line into paths that exist."""
    for index, arg in enumerate(config.args):
        path, separator, name = arg.partition("::")
        named = "rank0" in path or "proc" in path or (separator and not path.endswith(".py"))
        if named and not os.path.exists(config.invocation_params.dir / path):
            from pytest_probe.records import labelled_path

            config.args[index] = f"{labelled_path(config.invocation_params.dir, path)}{separator}{name}"


def _paths_given(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.ARGS


def _given(config: pytest.Config) -> Iterator[str]:
    """Options of the command line that a run has which probes."""
    asked = (option for option in options.OPTIONS if option.cli and not option.standalone)
    return (option.flag for option in asked if config.getoption(option.key) is not None)


def _may_probe(config: pytest.Config) -> bool:
    """Cheaply: could there be a dump to check, or was an option given that tests of the user's own go by?"""
    if any(_given(config)) or any(config.getini(option.key) for option in options.OPTIONS if option.probes):
        return True
    return _paths_given(config) and any(_is_data_file(arg) for arg in config.args)


def _is_data_file(arg: str) -> bool:
    path = arg.split("::")[0]
    return not path.endswith(".py") and os.path.isfile(path)


def _probe_of(config: pytest.Config) -> ProcessSession:
    """What this process's items share: made when it is first asked for, which may be before pytest is configured."""
    from pytest_probe.plugin.session import STATE, make_probe

    if STATE not in config.stash:
        _find_captured(config)
        config.stash[STATE] = make_probe(config, list(config.args) if _paths_given(config) else [])
    return config.stash[STATE]


def _configure(config: pytest.Config) -> None:
    from pytest_probe.plugin import progress, xdist

    state = _probe_of(config)
    xdist.check_devices(config, state)
    for feature in state.features:
        feature.prepare()
    _extend_args(config, state)
    config.pluginmanager.register(Collection(state), "probe-collection")
    if config.pluginmanager.hasplugin("allure_pytest"):
        from pytest_probe.plugin.items import AllureParameters

        config.pluginmanager.register(AllureParameters(), "probe-allure")
    if not xdist.is_worker(config):
        from pytest_probe.plugin.report_results import ReleaseResults
        from pytest_probe.plugin.reporting import Reporting

        config.pluginmanager.register(Reporting(state), "probe-reporting")
        config.pluginmanager.register(ReleaseResults(), "probe-release-results")
    state.register_features()
    progress.configure(config, state, distributes=xdist.is_controller(config))
    if xdist.is_controller(config):
        controller = xdist.Controller(state)
        config.pluginmanager.register(controller, "probe-controller")
        if xdist.workers_describe_devices(state):
            from pytest_probe.plugin.device_reports import DeviceReportReader

            reporting = config.pluginmanager.getplugin("probe-reporting")
            config.pluginmanager.register(
                DeviceReportReader(state, reporting.know_devices, controller.folder), "probe-device-reports"
            )
    elif not config.option.collectonly:
        from pytest_probe.plugin.guard import Guard

        config.pluginmanager.register(Guard.of(state), "probe-guard")
        if getattr(config.option, "xmlpath", None) and not (xdist.is_worker(config) or state.machines):
            from pytest_probe.plugin.junit import JunitFile

            config.pluginmanager.register(JunitFile(), "probe-junit-file")
        if "probe_says" in getattr(config, "workerinput", {}):
            from pytest_probe.plugin.device_reports import DeviceReportWriter

            config.pluginmanager.register(DeviceReportWriter(state), "probe-device-reports")


def _extend_args(config: pytest.Config, probe: ProcessSession) -> None:
    """Let pytest collect the dumps of --probe-dump: alone, or with the paths that the user gave. An ini file adds
    its own to what pytest collects anyway."""
    from pytest_probe.plugin.run_dumps import address

    alone = (
        (probe.dumps.asked or probe.has("collects"))
        and not _paths_given(config)
        and "dump" not in probe.settings.from_ini
    )
    args = [] if alone else list(config.args)
    folders = [path for arg in args if os.path.isdir(path := config.invocation_params.dir / arg)]
    # pytest 8 forgets a folder's other files where one of them is an argument as well; it finds the dump there anyway.
    dumps = (address(path) for path in probe.dumps.asked if not any(path.is_relative_to(folder) for folder in folders))
    config.args[:] = [*args, *(dump for dump in dumps if dump not in args)]


class Collection:
    """In every process of a run that probes: collects dumps, completes the reports of their items."""

    def __init__(self, probe: ProcessSession) -> None:
        self._probe = probe

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if self._probe.dumps.inside(file_path):
            from pytest_probe.plugin.collectors import ArchiveFile

            return ArchiveFile.of(self._probe, file_path, parent)
        dumps, collects = self._probe.dumps, self._probe.settings.collect and file_path.suffix != ".py"
        if not (dumps.is_dump(file_path) or (collects and dumps.finds(file_path))):
            return None
        from pytest_probe.plugin.collectors import ProbeFile

        return ProbeFile.of(self._probe, file_path, parent)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A dump that was given is collected, wherever it lies."""
        return False if self._probe.dumps.is_dump(collection_path) or self._probe.dumps.below(collection_path) else None

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if not self._probe.dumps.folders.hold(path):
            return None
        from pytest_probe.plugin.collectors import DumpFolder

        return DumpFolder.of(self._probe, path, parent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        from pytest_probe.plugin.order import arrange

        arrange(self._probe, session, items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from pytest_probe.plugin.order import write_selected

        write_selected(self._probe, session)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Import the framework, so that it counts for no item's time."""
        from pytest_probe.plugin.items import NoticeItem

        self._probe.item_hooks.settled = True
        items = (item for item in session.items if isinstance(item, NoticeItem))
        if self._probe.machines or session.config.option.collectonly:
            return
        if any(item.makes_calls for item in items):
            self._probe.warm_up()

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        from pytest_probe.plugin.items import NoticeItem

        # The next item may use what this one's run left.
        if isinstance(item, NoticeItem) and not (isinstance(nextitem, NoticeItem) and nextitem.run_key == item.run_key):
            self._probe.release()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        from pytest_probe.plugin.items import NoticeItem

        report = yield
        if isinstance(item, NoticeItem):
            item.complete(report, call)
        return report
