"""What is written about a run as a whole outside --probe-out: the page of --probe-html, and --probe-history.

Also what pytest could not write at the end of a run, which fails it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_probe.features.benchmark.benchmark import Benchmark
from pytest_probe.features.gate.baseline import Baseline
from pytest_probe.model.result import Result
from pytest_probe.settings import Settings
from pytest_probe.system.text import printable_line

if TYPE_CHECKING:
    from pytest_probe.features.history.file import HistoryRun
    from pytest_probe.features.html.other_runs import Comparison


class RunFiles:
    """Takes in the results of a run one at a time, and writes at its end. run is what run.json says.

    Raises SettingsError where the history is none, or of a newer schema.
    """

    def __init__(
        self, settings: Settings, run: Mapping[str, Any], benchmark: Benchmark | None, baseline: Baseline | None
    ) -> None:
        self._settings = settings
        self._run = dict(run)
        self._history = _history(settings)
        self._beside: Comparison | None = None
        if settings.html is not None:
            from pytest_probe.features.html.collected import Collected

            self._collected = Collected()
            self._beside = _beside(settings, benchmark, baseline)

    def add(self, result: Result) -> None:
        """Take in a result."""
        if self._history is not None:
            self._history.add(result)
        if self._settings.html is not None:
            row = self._collected.add(result)
            if self._beside is not None:
                self._beside.add(row, result)

    def know(self, **more: Any) -> None:
        """Take over what was not known when the run began."""
        self._run |= more

    def close(self) -> Iterator[str]:
        """Write. Yields a line for what could not be written, which fails nothing."""
        yield from self._append()
        yield from self._write_page()

    def _append(self) -> Iterator[str]:
        path = self._settings.history
        if self._history is None or path is None:
            return
        from pytest_probe.features.history.file import NotAppended

        out = self._settings.out
        try:
            folder = "" if out is None else printable_line(str(out))
            self._history.append(path, {**self._run, "folder": folder}, goes_on=self._settings.resume)
        except NotAppended as error:
            yield f"the run was not appended to {path}: {error}"

    def _write_page(self) -> Iterator[str]:
        path = self._settings.html
        if path is None:
            return
        from pytest_probe.features.html.other_runs import sparklines
        from pytest_probe.features.html.page import Page
        from pytest_probe.features.html.run_folder import RunFacts

        lines = sparklines(self._settings.history, self._collected.ids)
        try:
            Page(RunFacts.of(self._run), self._collected, self._beside, lines).write(path)
        except OSError as error:
            yield f"the page {path} cannot be written ({error.strerror})"


def _history(settings: Settings) -> HistoryRun | None:
    if settings.history is None:
        return None
    from pytest_probe.features.history.file import HistoryRun, check

    check(settings.history)
    return HistoryRun()


def _beside(settings: Settings, benchmark: Benchmark | None, baseline: Baseline | None) -> Comparison | None:
    """The benchmark, or else what the baseline said before the run."""
    from pytest_probe.features.html.other_runs import Comparison, OtherCase, OtherRun

    if benchmark is not None:
        cases = {result.id: OtherCase.of(result) for result in benchmark.results.values()}
        return Comparison(OtherRun(benchmark.folder.name, "benchmark", cases))
    if baseline is not None and settings.baseline is not None:
        kept = {id: OtherCase.kept(case) for id, case in baseline.cases.items()}
        return Comparison(OtherRun(settings.baseline.name, "baseline", kept))
    return None


def fail(session: pytest.Session) -> None:
    """Let the run end with a status that is not 0."""
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unwritten(config: pytest.Config, error: OSError) -> str:
    """What pytest, or another plugin, could not write at the end of a run."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    of_cache = "_pytest.cacheprovider" in modules
    file = error.filename or (config.rootpath / config.getini("cache_dir") if of_cache else f"a file of {modules[-1]}")
    return f"{file} cannot be written ({error.strerror or error}): the run went on without it"
