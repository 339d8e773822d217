"""The checking host's own device runs each call that came as well: the benchmark of three-party judging."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_probe import frameworks
from pytest_probe.check import Case, Checker
from pytest_probe.export.compare import compare, compared_files, judge
from pytest_probe.export.details import read_rows
from pytest_probe.model.result import PortableId, Result
from pytest_probe.model.verdict import Verdict
from pytest_probe.reports.results_file import RESULTS, lines_of
from pytest_probe.reports.tables import write_rows

# Its results, below --probe-out.
_FOLDER = "benchmark"


class BesideDevice:
    """One device of this machine. out is --probe-out: its results go to a folder below. Raises SettingsError for a
    device that is not here."""

    def __init__(self, checker: Checker, out: Path | None) -> None:
        self._checker = checker
        self.name = checker.setup_of(frameworks.DEFAULT).describe().get("device", "")
        self._results = None if out is None else out / _FOLDER / RESULTS
        if self._results is not None:
            self._results.parent.mkdir(parents=True, exist_ok=True)
            self._results.touch()

    def judge(self, case: Case, verdict: Verdict, identity: PortableId, api: str) -> Verdict:
        """The verdict on what came, with what this device gives taken into account."""
        began = time.perf_counter()
        own = self._checker.run(case, None).verdict
        seconds = time.perf_counter() - began
        result = Result.of(
            own, identity, api=api, direction=case.direction, dtype=case.dtype or "", device=self.name, duration=seconds
        )
        if self._results is not None:
            with self._results.open("a", encoding="utf-8") as file:
                file.write(lines_of([result]))
        return judge(verdict, result, api)


def compared_by_rank(folder: Path, ranks: Iterable[int], stamp: str, standard: str) -> Iterator[Path]:
    """Write api_precision_compare files of the results in --probe-out and of those of the device beside, a pair a rank.
    Raises OSError, SettingsError."""
    device, benchmark = (read_rows(each) for each in (folder, folder / _FOLDER))
    for rank in ranks:
        # Keys have no label where all results have one label.
        own, other = (
            {key: row for key, row in rows.items() if "::" not in key or key.startswith(f"rank{rank}/")}
            for rows in (device, benchmark)
        )
        found = compare(own, other, standard)
        for name, lines in compared_files(f"{stamp}_rank{rank}", found, standard).items():
            yield write_rows(folder / name, lines)
