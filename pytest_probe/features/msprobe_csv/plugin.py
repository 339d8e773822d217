"""The CSV files of msprobe's columns in --probe-out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from pytest_probe.features.msprobe_csv.checker import DECIMALS, write_csv
from pytest_probe.plugin.feature import Feature


class MsprobeCsv(Feature):
    conditions: Mapping[str, bool] = {"measured": True}

    def tables(self, folder: Path) -> Iterable[Path]:
        settings, stamp = self.probe.settings, datetime.now().strftime("%Y%m%d%H%M%S")
        decimals = DECIMALS if settings.rules.decimals is None else settings.rules.decimals
        by_rank = settings.listen is not None
        return write_csv(folder, stamp, decimals, by_rank=by_rank) if settings.judges else ()
