"""CSV files that are derived from a run's results."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO

from pytest_probe.model.result import number
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable_line


def write_rows(path: Path, rows: Iterable[Sequence[object]], encoding: str = "utf-8-sig") -> Path:
    """A CSV file of these rows, in place once it is whole. Raises OSError."""
    with replacing(path) as temporary, temporary.open("w", encoding=encoding, newline="") as file:
        rows_to(file)(rows)
    return path


def rows_to(file: IO[str]) -> Callable[[Iterable[Sequence[object]]], None]:
    """Writes rows; a text that a spreadsheet would compute begins with an apostrophe, by which spreadsheets mark
    texts."""
    writer = csv.writer(file, lineterminator="\n")
    return lambda rows: writer.writerows(map(_inert, row) for row in rows)


def _inert(cell: object) -> str:
    text = printable_line(str(cell))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and math.isnan(number(text)) else text


def folder_of(folder: Path, group: str) -> Path:
    """The folder below another one for the files of a group, as "gpt/dump.json"."""
    return folder.joinpath(*(_safe(part) for part in group.split("/")))


def _safe(part: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in part).strip(".") or "_"
