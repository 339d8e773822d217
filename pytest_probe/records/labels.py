"""Portable names for dumps: the same run has the same label on every machine."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

# The folder that a capture makes for a process that trains alone.
_PROCESS = re.compile(r"proc\d+")


def natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """A sort key by which step2 comes before step10, and a folder before what sorts behind it as text."""
    pieces = (piece for part in path.parts for piece in (*re.split(r"(\d+)", part), ""))
    return tuple((1, int(piece), "") if piece.isdecimal() else (0, 0, piece) for piece in pieces)


def labels(paths: Sequence[Path]) -> dict[Path, str]:
    """The label of each dump: its shortest path tail that no other has, at least the file name, with "/" between.

    A folder `proc1234` counts as `proc`, since process numbers change from run to run; where nothing else tells dumps
    apart, they are numbered in their order (`proc0`, `proc1`).
    """
    parts = _portable({path: Path(os.path.abspath(path)) for path in paths})
    pending = dict(parts)
    found: dict[Path, str] = {}
    depth = 0
    # Tails grow by one part until each is unique among all.
    while pending:
        depth += 1
        counts = Counter(tails[-depth:] for tails in set(parts.values()))
        done = [path for path, tails in pending.items() if counts[tails[-depth:]] == 1]
        found.update((path, "/".join(pending.pop(path)[-depth:])) for path in done)
    return {path: found[path] for path in paths}


def _portable(absolute: dict[Path, Path]) -> dict[Path, tuple[str, ...]]:
    """The path parts of each dump without process numbers, still different for different files."""
    alike: defaultdict[tuple[str, ...], set[Path]] = defaultdict(set)
    for path in absolute.values():
        alike[_without_numbers(path, "proc")].add(path)
    names: dict[Path, tuple[str, ...]] = {}
    for parts, files in alike.items():
        for index, file in enumerate(sorted(files, key=natural)):
            names[file] = parts if len(files) == 1 else _without_numbers(file, f"proc{index}")
    return {path: names[file] for path, file in absolute.items()}


def _without_numbers(path: Path, name: str) -> tuple[str, ...]:
    drive = [path.drive.rstrip(":")] if path.drive else []
    return (*drive, *(name if _PROCESS.fullmatch(part) else part for part in path.parts[1:]))
