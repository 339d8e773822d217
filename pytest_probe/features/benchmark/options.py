"""The folder of --probe-benchmark, and the standard that needs it."""

from __future__ import annotations

from pathlib import Path

from pytest_probe.option_types import Place, content
from pytest_probe.reports.results_file import RESULTS
from pytest_probe.settings import RawOptions, Settings
from pytest_probe.standards.tools.table import BENCHMARK


class RunFolder(Place):
    """The folder of a run, which is known by its results."""

    def identity(self, value: Path | None) -> str | None:
        return None if value is None else content(value / RESULTS)


def check(options: RawOptions, settings: Settings) -> None:
    """Raises SettingsError where a run is to be compared, and none is given."""
    if settings.standard == BENCHMARK and settings.benchmark is None:
        wanted = "it needs another run to compare with: add --probe-benchmark=DIR, that run's --probe-out"
        raise options["standard"].wrong(wanted)
