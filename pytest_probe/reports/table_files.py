"""CSV and JSON files that are derived from a run's results."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.model.result import number
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable_line


def write_rows(path: Path, rows: Iterable[Sequence[object]], encoding: str = "utf-8-sig") -> Path:
    """A CSV file of these rows, in place once it is whole. Raises OSError."""
    with replacing(path) as temporary:
        append_rows(temporary, rows, encoding)
    return path


def append_rows(path: Path, rows: Iterable[Sequence[object]], encoding: str = "utf-8-sig") -> None:
    """Write these rows behind those of a CSV file, which is made where it is not there. A text that a spreadsheet would
    compute begins with an apostrophe, by which spreadsheets mark texts. Raises OSError."""
    with path.open("a", encoding=encoding, newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(map(_inert, row) for row in rows)


def _inert(cell: object) -> str:
    text = printable_line(str(cell))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and math.isnan(number(text)) else text


def write_mappings(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A CSV file of the rows below their names. Raises OSError."""
    return write_rows(path, [[*rows[0]] if rows else [], *([*row.values()] for row in rows)])


def write_json(path: Path, name: str, rows: Sequence[object]) -> Path:
    """A JSON file with the rows under this name. Raises OSError."""
    with replacing(path) as temporary:
        content = msgspec.json.encode({"schema": 1, name: rows})
        temporary.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
    return path


def folder_of(folder: Path, group: str) -> Path:
    """The folder below another one for the files of a group, as "gpt/dump.json"."""
    for part in group.split("/"):
        folder /= "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in part).strip(".") or "_"
    return folder
