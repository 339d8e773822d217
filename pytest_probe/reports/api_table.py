"""Tables by API that a run ends with: lines of the summary, and files of --probe-out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_probe.reports.csv_file import write_rows
from pytest_probe.reports.terminal import wrap
from pytest_probe.system.files import replacing

# Of the JSON files.
_SCHEMA = 1


def api_lines(found: Mapping[tuple[str, str], Iterable[str]], width: int) -> Iterator[str]:
    """What is said of each API and dtype. width: the columns of the terminal."""
    for (api, dtype), words in found.items():
        yield from wrap(f"{api} {dtype}".rstrip() + f": {', '.join(words)}", "    ", "  ", width)


def write_json(path: Path, name: str, rows: Sequence[object]) -> Path:
    """The rows under this name. Raises OSError."""
    with replacing(path) as temporary:
        content = msgspec.json.encode({"schema": _SCHEMA, name: rows})
        temporary.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
    return path


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The rows below their names. Raises OSError."""
    return write_rows(path, [[*rows[0]] if rows else [], *([*row.values()] for row in rows)])
