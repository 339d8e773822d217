"""Files that are derived from a run's results, where they lie, and tables by API that a summary ends with."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from pytest_probe.model.result import number
from pytest_probe.reports.terminal import count, wrap
from pytest_probe.system.files import replacing
from pytest_probe.system.text import printable_line

# The folder of --probe-save.
SAVED = "saved"
# Of the JSON files.
_SCHEMA = 1
# Reasons why cases prove little that are listed, of an API each.
_LISTED = 20


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


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The rows below their names. Raises OSError."""
    return write_rows(path, [[*rows[0]] if rows else [], *([*row.values()] for row in rows)])


def write_json(path: Path, name: str, rows: Sequence[object]) -> Path:
    """The rows under this name. Raises OSError."""
    with replacing(path) as temporary:
        content = msgspec.json.encode({"schema": _SCHEMA, name: rows})
        temporary.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
    return path


def api_lines(found: Mapping[tuple[str, str], Iterable[str]], width: int) -> Iterator[str]:
    """What is said of each API and dtype. width: the columns of the terminal."""
    for (api, dtype), words in found.items():
        yield from wrap(f"{api} {dtype}".rstrip() + f": {', '.join(words)}", "    ", "  ", width)


class WeakCases(Struct):
    """Cases that prove little: what a run has found, and what `show` expects. names has those of the cases by API with
    direction, and reason; apis counts them by API."""

    names: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    apis: Counter[str] = field(default_factory=Counter)

    def add(self, api: str, name: str, reason: str) -> None:
        self.names.setdefault((api, reason), []).append(name)
        self.apis[api] += 1

    def lines(self, verb: str, width: int, source: str = "") -> Iterator[str]:
        """verb: "prove", in its form; source says what tells it, behind a comma."""
        if not self.names:
            return
        yield f"{count(self.apis.total(), 'case')} {verb} little or nothing{source}:"
        for (api, reason), names in list(self.names.items())[:_LISTED]:
            first, *rest = sorted(names, key=_by_number)
            more = f" and {len(rest):,} more of {api.split()[0]}" if rest else ""
            yield from wrap(f"{first}{more}: {reason}", "    ", "  ", width)
        if len(self.names) > _LISTED:
            yield f"  and {len(self.names) - _LISTED:,} more reasons"


def _by_number(name: str) -> list[tuple[int, str]]:
    """Orders names by the numbers in them."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def folder_of(folder: Path, group: str) -> Path:
    """The folder below another one for the files of a group, as "gpt/dump.json"."""
    return folder.joinpath(*(_safe(part, "._-").strip(".") or "_" for part in group.split("/")))


def saved_path(out: Path, label: str, name: str) -> Path:
    """The file of a case's tensors in a --probe-out. The name was read from a dump: no part of it may lead
    elsewhere."""
    return out / SAVED / label / f"{_safe(name, '._-[]')}.pt"


def _safe(text: str, allowed: str) -> str:
    return "".join(letter if letter.isalnum() or letter in allowed else "_" for letter in text)
