"""Files that are derived from a run's results, and where they lie."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_probe.model.result import number
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable_line

# The folder of --probe-save.
SAVED = "saved"


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


def folder_of(folder: Path, group: str) -> Path:
    """The folder below another one for the files of a group, as "gpt/dump.json"."""
    return folder.joinpath(*(_safe(part, "._-").strip(".") or "_" for part in group.split("/")))


def saved_path(out: Path, label: str, name: str) -> Path:
    """The file of a case's tensors in a --probe-out. The name was read from a dump: no part of it may lead
    elsewhere."""
    return out / SAVED / label / f"{_safe(name, '._-[]')}.pt"


def _safe(text: str, allowed: str) -> str:
    return "".join(letter if letter.isalnum() or letter in allowed else "_" for letter in text)
