"""All files that a whole set of results deserves, made in one pass over results.jsonl: at the end of a run, and where
shards are merged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pytest_probe.export import measured
from pytest_probe.export.details import DECIMALS, Layout, layout_of
from pytest_probe.export.table import CallStatuses, Column, Table
from pytest_probe.model.result import Result
from pytest_probe.model.verdict import SENSITIVITY
from pytest_probe.options import ACCURACY
from pytest_probe.reports.answers import Answers
from pytest_probe.reports.results_file import RESULTS, append_rows, folder_of, read_results, write_rows

# Results whose rows are written at a time.
_BATCH = 500


# What each output would have shown of an error.
_DETECTS = Table(
    (
        Column("id", lambda row: row[0].id),
        Column("output", lambda row: row[1].name),
        Column("dtype", lambda row: row[1].dtype),
        Column("scale_error", lambda row: row[1].detects.scale),
        Column("element_ulp", lambda row: row[1].detects.element),
        Column("row_ulp", lambda row: row[1].detects.row),
        Column("terms", lambda row: row[1].detects.terms),
        Column("missing_term_found", lambda row: row[1].detects.term),
        Column(
            "weak", lambda row: next((each.message for each in row[0].answers if each.question == SENSITIVITY), None)
        ),
    ),
    "",
    "{:.4g}".format,
)
# The files of all results, by name: each a table, and what its rows are of a result.
_FILES: Mapping[str, tuple[Table, Callable[[Result], Iterable[Any]]]] = {
    "detects.csv": (_DETECTS, lambda result: ((result, output) for output in result.outputs if output.detects)),
    **measured.OF_RESULTS,
}


class _File(Struct, frozen=True):
    """A table as it is written. It is open only while rows go in: there may be more tables than a process may have
    files."""

    path: Path
    table: Table
    rows: Callable[[Result], Iterable[Any]]

    def begin(self) -> None:
        append_rows(self.path, [self.table.header])

    def extend(self, results: Iterable[Result]) -> None:
        lines = [self.table.line(row) for result in results for row in self.rows(result)]
        if lines and not self.path.exists():
            self.begin()
        if lines:
            append_rows(self.path, lines)


class _CheckerFiles(Struct):
    """The details of each group of results, and what the other file says of their calls.

    A group is a dump, in a dtype of --probe-dtype; where calls came while programs ran, a rank, with all its steps."""

    hidden: Path
    decimals: int
    by_rank: bool
    groups: dict[str, tuple[_File, Layout, CallStatuses]] = field(default_factory=dict)

    def extend(self, calls: Iterable[Result]) -> None:
        for (group, standard), found in groupby(calls, lambda result: (self._group(result), result.standard)):
            if group not in self.groups:
                layout = layout_of(standard, self.decimals)
                details = _File(self.hidden / f"{len(self.groups)}.csv", layout.details, layout.rows)
                details.begin()
                self.groups[group] = details, layout, CallStatuses()
            details, layout, statuses = self.groups[group]
            results = [*filter(layout.has, found)]
            details.extend(results)
            for result in results:
                layout.count(result, statuses)

    def _group(self, result: Result) -> str:
        """ "gpt/dump.json/bfloat16", or "rank0" of "rank0/step3"."""
        named = result.portable_id
        if self.by_rank:
            return named.label.partition("/")[0]
        return f"{named.label}/{named.dtype}" if named.dtype else named.label

    def place(self, folder: Path, stamp: str) -> Iterator[Path]:
        """In a folder for each group, where there are several."""
        for group, (details, layout, statuses) in self.groups.items():
            below = folder if self.by_rank or len(self.groups) == 1 else folder_of(folder, group)
            below.mkdir(parents=True, exist_ok=True)
            name = f"accuracy_checking_{{}}_{stamp}{f'_{group}' if self.by_rank else ''}.csv".format
            yield write_rows(below / name("result"), statuses.lines(layout.call, layout.details.blank))
            yield details.path.replace(below / name("details"))


def write_files(folder: Path, settings: Mapping[str, Any], decimals: int = DECIMALS) -> list[Path]:
    """The files of the results in a folder, of a run with these settings, as run.json has them; decimals are those of
    numbers in msprobe's columns. What nothing was measured for, or asked of, has no file. Raises OSError."""
    stamp, answers = datetime.now().strftime("%Y%m%d%H%M%S"), Answers()
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as name:
        hidden, judges = Path(name), ACCURACY in settings["mode"]
        checker = _CheckerFiles(hidden, decimals, by_rank=settings.get("listen") is not None)
        files = [_File(hidden / name, *of) for name, of in _FILES.items()]
        if judges:
            files[0].begin()
        results = read_results(folder / RESULTS)
        while batch := list(islice(results, _BATCH)):
            if judges:
                checker.extend(result for result in batch if result.api)
            for file in files:
                file.extend(batch)
            for result in batch:
                answers.add(result)
        written = [*checker.place(folder, stamp)]
        written += [file.path.replace(folder / file.path.name) for file in files if file.path.exists()]
    return [*written, *answers.write(folder)]
