"""accuracy_checking_result_*.csv and accuracy_checking_details_*.csv, from a run's results: in the columns of msprobe,
whose own api_precision_compare reads the details, or in those of its checker for MindSpore.

UTF-8 with a byte order mark. msprobe has floats with 14 decimals, or as many as its file says, and a space in cells
that are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from pytest_probe.features.msprobe_csv.mindspore import MindSporeColumns
from pytest_probe.features.msprobe_csv.rows import (
    BLANK,
    COSINE,
    DETAILS,
    MEASURED,
    OF_RULE,
    RESULT,
    STATUSES,
    shape_text,
    status_of,
)
from pytest_probe.model.result import OutputResult, Plain, Result, number
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.reports.tables import folder_of, rows_to, write_rows
from pytest_probe.standards.tools import TOOLS, rule_of
from pytest_probe.system.files import temporary_path

_RESULT_FILE, _DETAILS_FILE = "accuracy_checking_result_{}.csv", "accuracy_checking_details_{}.csv"


# msprobe's.
DECIMALS = 14


def write_csv(folder: Path, stamp: str, decimals: int = DECIMALS, *, by_rank: bool = False) -> list[Path]:
    """The files of the results in a folder, named by a stamp ("20261121093000"). A dump, and a dtype of --probe-dtype,
    has a pair of its own, in a folder below where there are several. by_rank: calls came while programs ran, and a rank
    has a pair, with all its steps. decimals are those of numbers in msprobe's columns. Raises OSError."""
    tables: dict[str, _Tables] = {}
    calls = (result for result in read_results(folder / RESULTS) if result.api)
    group_of = _rank if by_rank else _group
    for (group, standard), results in groupby(calls, lambda result: (group_of(result), result.standard)):
        if group not in tables:
            tables[group] = _Tables.made(folder, stamp, layout_of(standard, decimals))
        tables[group].extend(results)
    written = []
    for group, table in tables.items():
        if by_rank:
            written += table.place(folder, f"{stamp}_{group}")
            continue
        below = folder if len(tables) == 1 else folder_of(folder, group)
        written += table.place(below, stamp)
    return written


def _rank(result: Result) -> str:
    """ "rank0" of "rank0/step3"."""
    return result.portable_id.label.partition("/")[0]


def _group(result: Result) -> str:
    """ "gpt/dump.json/bfloat16"."""
    named = result.portable_id
    return f"{named.label}/{named.dtype}" if named.dtype else named.label


class Layout(Protocol):
    """What a checker's two files hold: the columns of both, and what a cell of the second one is where there is no such
    direction."""

    @property
    def details(self) -> Sequence[str]: ...

    @property
    def result(self) -> Sequence[str]: ...

    @property
    def blank(self) -> str: ...

    def has(self, result: Result) -> bool:
        """Does it have rows of such a case?"""

    def detail(self, name: str, result: Result, output: OutputResult) -> Sequence[object]:
        """The row of an output; name is what it is called there."""

    def message(self, result: Result, before: str) -> str:
        """What the row of the call says, "" for nothing. before: what it says of the other direction."""


class MsprobeColumns(Struct, frozen=True):
    details: Sequence[str] = DETAILS
    result: Sequence[str] = RESULT
    blank: str = BLANK
    decimals: int = DECIMALS

    def has(self, result: Result) -> bool:
        return True

    def detail(self, name: str, result: Result, output: OutputResult) -> Sequence[object]:
        found = {column: output.measures.get(measure) for column, measure in MEASURED.items()}
        blank = _left_blank(result, output.dtype)
        cells = (BLANK if column in blank else _cell(column, value, self.decimals) for column, value in found.items())
        dtypes = (_bench(output.dtype), f"torch.{output.dtype}")
        return [name, *dtypes, shape_text(output.shape), *cells, output.verdict, output.reason]

    def message(self, result: Result, before: str) -> str:
        return result.reason if status_of(result.accuracy) == "SKIP" else before


def layout_of(standard: str, decimals: int = DECIMALS) -> Layout:
    """The layout of a run that was judged by this standard."""
    tool = TOOLS.get(standard)
    if tool is not None and tool.release.columns.layout == "mindspore":
        return MindSporeColumns(tool.release)
    return MsprobeColumns(decimals=decimals)


class _Tables(Struct):
    """One details file as it is written, and what its result file will say. The file is open only while rows go in:
    there may be more groups than a process may have files."""

    path: Path
    layout: Layout
    statuses: dict[str, dict[str, str]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path, stamp: str, layout: Layout) -> _Tables:
        """Tables with a new file of details that has its header."""
        path = temporary_path(folder / _DETAILS_FILE.format(stamp))
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            rows_to(file)([layout.details])
        return cls(path, layout)

    def extend(self, results: Iterable[Result]) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            write = rows_to(file)
            for result in results:
                write(self._rows(result))

    def _rows(self, result: Result) -> Iterator[Sequence[object]]:
        if not self.layout.has(result):
            return
        named, status = result.portable_id, status_of(result.accuracy)
        known = self.statuses.setdefault(named.call, {})
        known[named.direction] = max(known.get(named.direction, status), status, key=STATUSES.index)
        if message := self.layout.message(result, self.messages.get(named.call, "")):
            self.messages[named.call] = message
        for index, output in enumerate(result.own_outputs):
            yield self.layout.detail(f"{named.entry}.output.{index}", result, output)

    def place(self, folder: Path, stamp: str) -> list[Path]:
        """Move the details to their folder, and write the result file next to them."""
        folder.mkdir(parents=True, exist_ok=True)
        details, result = folder / _DETAILS_FILE.format(stamp), folder / _RESULT_FILE.format(stamp)
        self.path.replace(details)
        return [write_rows(result, [self.layout.result, *self._summary()]), details]

    def _summary(self) -> Iterator[Sequence[str]]:
        for name, known in self.statuses.items():
            blank = self.layout.blank
            row = [name, known.get("forward", blank), known.get("backward", blank)]
            yield [*row, self.messages[name]] if name in self.messages else row


def _left_blank(result: Result, dtype: str) -> set[str]:
    """Columns of rules that do not judge this API."""
    floating = "float" in dtype or "complex" in dtype
    kept = OF_RULE.get(rule_of(result.standard, result.api, dtype), ()) if floating else OF_RULE["binary"]
    return {column for columns in OF_RULE.values() for column in columns} - set(kept)


def _bench(dtype: str) -> str:
    """The reference's dtype: wide for floats, else the output's own."""
    if dtype.startswith("complex"):
        return "torch.complex128"
    return "torch.float64" if "float" in dtype else f"torch.{dtype}"


def _cell(column: str, value: Plain, decimals: int) -> str:
    if value is None:
        return BLANK
    if isinstance(value, int):
        return str(value)
    return f"{1 - number(value) if column == COSINE else number(value):.{decimals}f}"
