"""A file that is replaced is the old one or the new one, and nothing lies beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_probe.core.whole_file import replacing


def test_the_new_file_replaces_the_old(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), replacing(path) as temporary:
        temporary.write_text("\udc80", encoding="utf-8")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
