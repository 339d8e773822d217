"""accuracy_checking_result_*.csv and accuracy_checking_details_*.csv in msprobe's columns, from a run's results.

msprobe's own api_precision_compare reads the details. UTF-8 with a byte order mark, floats with 14 decimals, a
space in cells that are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field

from pytest_probe.features.msprobe_csv.rows import (
    BLANK,
    COSINE,
    DETAILS,
    MEASURED,
    OF_RULE,
    RESULT,
    STATUSES,
    status_of,
)
from pytest_probe.model.result import OutputResult, Plain, Result, number
from pytest_probe.reports.csv_file import folder_of, rows_to, write_rows
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.standards.tools import rule_of
from pytest_probe.system.files import temporary_path

_RESULT_FILE, _DETAILS_FILE = "accuracy_checking_result_{}.csv", "accuracy_checking_details_{}.csv"


def write_csv(folder: Path, stamp: str) -> list[Path]:
    """The files of the results in a folder, named by a stamp ("20261121093000"). A dump, and a dtype of --probe-dtype,
    has a pair of its own, in a folder below where there are several. Raises OSError."""
    tables: dict[str, _Tables] = {}
    calls = (result for result in read_results(folder / RESULTS) if result.api)
    for group, results in groupby(calls, _group):
        if group not in tables:
            tables[group] = _Tables.made(folder, stamp)
        tables[group].extend(results)
    written = []
    for group, table in tables.items():
        below = folder if len(tables) == 1 else folder_of(folder, group)
        written += table.place(below, stamp)
    return written


def _group(result: Result) -> str:
    """ "gpt/dump.json/bfloat16"."""
    named = result.portable_id
    return f"{named.label}/{named.dtype}" if named.dtype else named.label


class _Tables(Struct):
    """One details file as it is written, and what its result file will say. The file is open only while rows go in:
    there may be more groups than a process may have files."""

    path: Path
    statuses: dict[str, dict[str, str]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path, stamp: str) -> _Tables:
        """Tables with a new file of details that has its header."""
        path = temporary_path(folder / _DETAILS_FILE.format(stamp))
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            rows_to(file)([DETAILS])
        return cls(path)

    def extend(self, results: Iterable[Result]) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            write = rows_to(file)
            for result in results:
                write(self._rows(result))

    def _rows(self, result: Result) -> Iterator[Sequence[object]]:
        named, status = result.portable_id, status_of(result.accuracy)
        known = self.statuses.setdefault(named.call, {})
        known[named.direction] = max(known.get(named.direction, status), status, key=STATUSES.index)
        if status == "SKIP":
            self.messages[named.call] = result.reason
        for index, output in enumerate(result.outputs):
            yield _detail(f"{named.entry}.output.{index}", output, _left_blank(result, output.dtype))

    def place(self, folder: Path, stamp: str) -> list[Path]:
        """Move the details to their folder, and write the result file next to them."""
        folder.mkdir(parents=True, exist_ok=True)
        details, result = folder / _DETAILS_FILE.format(stamp), folder / _RESULT_FILE.format(stamp)
        self.path.replace(details)
        return [write_rows(result, [RESULT, *self._summary()]), details]

    def _summary(self) -> Iterator[Sequence[str]]:
        for name, known in self.statuses.items():
            row = [name, known.get("forward", BLANK), known.get("backward", BLANK)]
            yield [*row, self.messages[name]] if name in self.messages else row


def _left_blank(result: Result, dtype: str) -> set[str]:
    """Columns of rules that do not judge this API."""
    floating = "float" in dtype or "complex" in dtype
    kept = OF_RULE.get(rule_of(result.standard, result.api, dtype), ()) if floating else OF_RULE["binary"]
    return {column for columns in OF_RULE.values() for column in columns} - set(kept)


def _detail(name: str, output: OutputResult, blank: set[str]) -> Sequence[object]:
    found = {column: output.measures.get(measure) for column, measure in MEASURED.items()}
    cells = (BLANK if column in blank else _cell(column, value) for column, value in found.items())
    shape = f"({', '.join(map(str, output.shape))}{',' if len(output.shape) == 1 else ''})"
    dtypes = (_bench(output.dtype), f"torch.{output.dtype}")
    return [name, *dtypes, shape, *cells, output.verdict, output.reason]


def _bench(dtype: str) -> str:
    """The reference's dtype: wide for floats, else the output's own."""
    if dtype.startswith("complex"):
        return "torch.complex128"
    return "torch.float64" if "float" in dtype else f"torch.{dtype}"


def _cell(column: str, value: Plain) -> str:
    if value is None:
        return BLANK
    if isinstance(value, int):
        return str(value)
    return f"{1 - number(value) if column == COSINE else number(value):.14f}"
