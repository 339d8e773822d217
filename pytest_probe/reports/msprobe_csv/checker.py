"""accuracy_checking_result_*.csv and accuracy_checking_details_*.csv in msprobe's columns, from a run's results.

msprobe's own api_precision_compare reads the details. UTF-8 with a byte order mark, floats with 14 decimals, a
space in cells that are not used.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from pytest_probe.core.result import number
from pytest_probe.reports.msprobe_csv.columns import (
    BLANK,
    COSINE,
    DETAILS,
    MEASURED,
    OF_RULE,
    RESULT,
    STATUSES,
    status_of,
)
from pytest_probe.reports.msprobe_csv.rows import entry_of
from pytest_probe.reports.results_file import RESULTS, read_results
from pytest_probe.standards.tools.table import BENCHMARK, later, packaged

RESULT_FILE, DETAILS_FILE = "accuracy_checking_result_{}.csv", "accuracy_checking_details_{}.csv"


def write_csv(folder: Path, stamp: str) -> list[Path]:
    """The files of the results in a folder, named by a stamp ("20261121093000"). A dump, and a dtype of --probe-dtype,
    has a pair of its own, in a folder below where there are several. Raises OSError."""
    tables: dict[str, Tables] = {}
    calls = (outcome for outcome in read_results(folder / RESULTS) if outcome["api"])
    for group, outcomes in groupby(calls, lambda outcome: _group(outcome["id"])[0]):
        if group not in tables:
            tables[group] = Tables.made(folder, f"{stamp}.{len(tables)}")
        tables[group].extend(outcomes)
    written = []
    for group, table in tables.items():
        below = folder if len(tables) == 1 else folder.joinpath(*(_safe(part) for part in group.split("/")))
        written += table.place(below, stamp)
    return written


def written(path: Path, rows: Iterable[Sequence[object]]) -> Path:
    """A CSV file of these rows, in place once it is whole. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    os.replace(temporary, path)
    return path


def _group(identity: str) -> tuple[str, str]:
    """Group ("gpt/dump.json/bfloat16") and entry ("Functional.linear.0.forward") of a portable id."""
    label, entry, dtype = entry_of(identity)
    return f"{label}/{dtype}" if dtype else label, entry


def _safe(part: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in part).strip(".") or "_"


@dataclass
class Tables:
    """One details file as it is written, and what its result file will say. The file is open only while rows go in:
    there may be more groups than a process may have files."""

    path: Path
    statuses: dict[str, dict[str, str]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path, stamp: str) -> Tables:
        """With a file that has its header."""
        path = folder / f".{DETAILS_FILE.format(stamp)}.{os.getpid()}"
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(DETAILS)
        return cls(path)

    def extend(self, outcomes: Iterable[Mapping[str, Any]]) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for outcome in outcomes:
                rows.writerows(self._rows(outcome))

    def _rows(self, outcome: Mapping[str, Any]) -> Iterator[Sequence[object]]:
        _, entry = _group(outcome["id"])
        name, _, direction = entry.rpartition(".")
        status = status_of(outcome["verdict"])
        known = self.statuses.setdefault(name, {})
        known[direction] = max(known.get(direction, status), status, key=STATUSES.index)
        if status == "SKIP":
            self.messages[name] = outcome["reason"]
        for index, output in enumerate(outcome["outputs"]):
            yield _detail(f"{entry}.output.{index}", output, _left_blank(outcome, output["dtype"]))

    def place(self, folder: Path, stamp: str) -> list[Path]:
        """Move the details to their folder, and write the result file beside them."""
        folder.mkdir(parents=True, exist_ok=True)
        details, result = folder / DETAILS_FILE.format(stamp), folder / RESULT_FILE.format(stamp)
        os.replace(self.path, details)
        return [written(result, [RESULT, *self._summary()]), details]

    def _summary(self) -> Iterator[Sequence[str]]:
        for name, known in self.statuses.items():
            row = [name, known.get("forward", BLANK), known.get("backward", BLANK)]
            yield [*row, self.messages[name]] if name in self.messages else row


def _left_blank(outcome: Mapping[str, Any], dtype: str) -> set[str]:
    """Columns of rules that do not judge this API. msprobe 26 judges all floats by ratios."""
    floating = "float" in dtype or "complex" in dtype
    table = later() if outcome["standard"] == "msprobe-8" else packaged()
    rule = BENCHMARK if outcome["standard"] == "msprobe-26" else table.rule(outcome["api"], dtype).name
    kept = OF_RULE.get(rule, ()) if floating else OF_RULE["binary"]
    return {column for columns in OF_RULE.values() for column in columns} - set(kept)


def _detail(name: str, output: Mapping[str, Any], blank: set[str]) -> Sequence[object]:
    measures = output.get("measures", {})
    cells = (BLANK if column in blank else _cell(column, measures.get(measure)) for column, measure in MEASURED.items())
    shape = f"({', '.join(map(str, output['shape']))}{',' if len(output['shape']) == 1 else ''})"
    return [
        name,
        _bench(output["dtype"]),
        f"torch.{output['dtype']}",
        shape,
        *cells,
        output["verdict"],
        output["reason"],
    ]


def _bench(dtype: str) -> str:
    """The reference's dtype: wide for floats, else the output's own."""
    if dtype.startswith("complex"):
        return "torch.complex128"
    return "torch.float64" if "float" in dtype else f"torch.{dtype}"


def _cell(column: str, value: Any) -> str:
    if value is None:
        return BLANK
    if isinstance(value, int):
        return str(value)
    return f"{1 - number(value) if column == COSINE else number(value):.14f}"
