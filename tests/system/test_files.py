from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_probe.system.files import replacing, write_whole


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


def test_a_file_is_written_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, sizes = os.write, []

    def slow(file: int, content: memoryview) -> int:
        sizes.append(len(content))
        return write(file, content[:4])

    (tmp_path / "stack.json").write_bytes(b"old")
    monkeypatch.setattr(os, "write", slow)
    write_whole(tmp_path / "stack.json", b"0123456789")
    monkeypatch.undo()
    assert sizes == [10, 6, 2]
    assert (tmp_path / "stack.json").read_bytes() == b"0123456789"
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_a_full_disk_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, content: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "stack.json").write_bytes(b"old")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "stack.json", b"new")
    assert (tmp_path / "stack.json").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]
