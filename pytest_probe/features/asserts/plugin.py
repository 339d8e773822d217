"""`--probe-asserts`: a section in the report of each failing assert that compares arrays, and with `all` a summary of
what the passing ones need. Nothing heavy is imported before an assert fails."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import ast

FILE = "asserts.jsonl"


class Failing:
    """In every process of a run, whether it probes or not."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and report.failed and isinstance(call.excinfo.value, AssertionError):
            lines = self._explained(call.excinfo.value)
            if lines:
                # Behind the traceback, where the terminal and junit show it, and the report of another process has it.
                add: Any = getattr(report.longrepr, "addsection", lambda *each: report.sections.append(each))
                add("probe", "\n".join(lines))
        return report

    def _explained(self, error: BaseException) -> list[str]:
        from pytest_probe.features.asserts.failed import failed_assert

        try:
            failed = failed_assert(error, self._rewrite)
            if failed is None:
                return []
            from pytest_probe.features.asserts.section import section

            # What is odd about the numbers is the section's matter, and no warning of the test's.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return section(failed)
        except Exception as own:
            from pytest_probe.system.text import printable_line

            return [printable_line(f"the difference cannot be explained: {type(own).__name__}: {own}")]

    def _rewrite(self, module: ast.Module, source: bytes) -> None:
        """As pytest did when it imported the test's module."""
        from _pytest.assertion.rewrite import rewrite_asserts

        rewrite_asserts(module, source, None, self._config)


class Passing:
    """Measures in the processes that run tests, and tells in the one that reports."""

    def __init__(self, config: pytest.Config) -> None:
        from pytest_probe.features.asserts.measured import Measured
        from pytest_probe.features.asserts.section import Tests

        self._config = config
        self._measured, self._tests = Measured(), Tests()
        self._trouble = ""
        self._replaced = ExitStack()
        self._replaced.enter_context(self._measured.replacing())
        config.add_cleanup(self._replaced.close)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        root = str(self._config.rootpath)
        files = [(module, getattr(module, "__file__", None)) for module in list(sys.modules.values())]
        self._measured.replace_in([module for module, file in files if str(file or "").startswith(root)])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        rows = self._measured.taken() if report.when == "teardown" else []
        if rows:
            report.probe_asserts = rows  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        rows = report.__dict__.pop("probe_asserts", ()) if not self._in_worker else ()
        self._tests.add(report.nodeid, rows)

    @property
    def _in_worker(self) -> bool:
        return hasattr(self._config, "workerinput")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_probe.reports.terminal import width_of, wrap

        if not self._tests.number or terminalreporter.verbosity < -1:
            return
        terminalreporter.write_sep("=", "probe: asserts")
        for line in self._tests.lines():
            for part in wrap(line, width=width_of(terminalreporter)):
                terminalreporter.write_line(part)
        if self._trouble:
            terminalreporter.write_line(f"probe: {self._trouble}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = self._config
        if self._in_worker or not (config.getoption("probe_out") or config.getini("probe_out")):
            return
        from pytest_probe.plugin.session import STATE

        folder = config.stash[STATE].settings.out if STATE in config.stash else None
        if folder is None:
            return
        from pytest_probe.plugin.run_end import fail
        from pytest_probe.system.files import replacing

        try:
            with replacing(folder / FILE) as temporary:
                temporary.write_bytes(self._tests.json_lines())
        except OSError as error:
            self._trouble = f"{folder / FILE} cannot be written ({error.strerror or error})"
            fail(session)


def register(config: pytest.Config, asked: str) -> None:
    """asked: "failing" or "all"."""
    config.pluginmanager.register(Failing(config), "probe-asserts")
    if asked == "all":
        config.pluginmanager.register(Passing(config), "probe-asserts-all")
