"""A file beside the running ones with the calls of searches that ended their process: the next process passes over
them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from pytest_probe.model.fatal_call import FatalCall

FILE = "fatal_calls.jsonl"


def note(folder: Path, found: FatalCall) -> None:
    """Add one. A disk that takes no more is no reason to end: the next process dies of the call again."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / FILE).open("ab") as file:
            file.write(msgspec.json.encode(found) + b"\n")


def of_search(folder: Path | None, id: str) -> list[FatalCall]:
    """Those of one search, by its portable id. folder None: nobody has noted any."""
    if folder is None or not (folder / FILE).exists():
        return []
    found = []
    for line in (folder / FILE).read_bytes().splitlines():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            found.append(msgspec.json.decode(line, type=FatalCall))
    return [each for each in found if each.id == id]
