"""The CSV files of msprobe's columns in --probe-out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pytest_probe.features.msprobe_csv.checker import write_csv
from pytest_probe.plugin.feature import Feature


class MsprobeCsv(Feature):
    measures = True

    def tables(self, folder: Path) -> Iterable[Path]:
        judged = self.probe.settings.judges
        return write_csv(folder, datetime.now().strftime("%Y%m%d%H%M%S")) if judged else ()
