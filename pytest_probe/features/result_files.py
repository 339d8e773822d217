"""The files of --probe-out that are made from all results, most of them in the columns of other tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_probe.export.details import DECIMALS
from pytest_probe.export.files import write_files
from pytest_probe.plugin.feature import Feature


class ResultFiles(Feature):
    request: Mapping[str, bool] = {"measured": True}

    def tables(self, folder: Path) -> Iterable[Path]:
        settings = self.probe.settings
        decimals = DECIMALS if settings.rules.decimals is None else settings.rules.decimals
        return write_files(folder, settings.described(), decimals)
