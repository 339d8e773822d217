"""Cells of a tool's CSV files beside those of ours."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest


def lines(folder: Path, name: str) -> list[list[str]]:
    """Those of the one file in a folder that begins with this name."""
    (path,) = folder.glob(f"{name}*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Its rows, by the names of columns."""
    header, *found = lines(folder, name)
    return [dict(zip(header, line, strict=True)) for line in found]


def unlike(mine: list[list[str]], theirs: list[list[str]]) -> Iterator[str]:
    """Cells that differ, messages apart, which are ours: as texts, or as numbers by more than 1e-6."""
    for ours, line in zip(mine, theirs, strict=True):
        assert len(ours) == len(line)
        for column, a, b in zip(theirs[0], ours, line, strict=False):
            if column != "Message" and a != b and not _near(a, b):
                yield f"{line[0]}, {column}: {a!r}, the tool has {b!r}"


def _near(a: str, b: str) -> bool:
    try:
        return float(a) == pytest.approx(float(b), rel=1e-6, abs=1e-13)
    except ValueError:
        return False
