"""The folder of --probe-benchmark."""

from __future__ import annotations

from pathlib import Path

from pytest_probe.option_types import Place, content
from pytest_probe.reports.results_file import RESULTS


class RunFolder(Place):
    """The folder of a run, which is known by its results."""

    def identity(self, value: Path | None) -> str | None:
        return None if value is None else content(value / RESULTS)
