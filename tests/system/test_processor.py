from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_probe.system import machine


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"0": "32K", "1": "1024K", "3": "32768K"}, 32 << 20),
        ({"0": "1M\n", "1": "2G"}, 2 << 30),
        ({"0": "some", "1": ""}, 0),
        ({}, 0),
    ],
)
def test_the_largest_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, str], expected: int
) -> None:
    for number, text in sizes.items():
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(text)
    right = Path.glob

    def glob(self: Path, pattern: str) -> Iterator[Path]:
        return iter(right(tmp_path if "cache" in self.name else self, pattern))

    monkeypatch.setattr(Path, "glob", glob)
    assert machine.last_level_cache.__wrapped__() == expected


@pytest.mark.parametrize(
    ("said", "workers", "expected"),
    [("", 1, 6), ("", 2, 3), ("", 20, 1), ("1", 1, 1), ("4,2", 1, 4), ("16", 1, 6), ("many", 1, 6), ("0", 1, 6)],
)
def test_cores_are_those_that_the_process_may_use_and_shares(
    monkeypatch: pytest.MonkeyPatch, said: str, workers: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setattr(machine._Workers, "count", 1)
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    machine.share_cores(workers)
    assert machine.usable_cores() == expected
