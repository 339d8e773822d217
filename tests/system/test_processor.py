"""What the system tells of the processor."""

from __future__ import annotations

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
