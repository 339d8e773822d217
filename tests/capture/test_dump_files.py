from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pytest_probe.capture.dump_files import GrowingFile, write_json


def read(path: Path) -> object:
    return json.loads(path.read_text())


def test_it_is_whole_after_each_write(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    file = GrowingFile(path, {"task": "statistics"}, "data")
    assert read(path) == {"task": "statistics", "data": {}}
    file.add([("a", b"1"), ("b", b'{"c": [2]}')])
    assert read(path) == {"task": "statistics", "data": {"a": 1, "b": {"c": [2]}}}
    file.add([("d", b"null")])
    file.close()
    assert read(path) == {"task": "statistics", "data": {"a": 1, "b": {"c": [2]}, "d": None}}


def test_names_may_be_any_text(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "dump.json", {"a": 1}, "data")
    file.add([('say "a\\b"\n', b"1")])
    file.close()
    assert read(tmp_path / "dump.json") == {"a": 1, "data": {'say "a\\b"\n': 1}}


@pytest.mark.parametrize("room", [0, 1, 7, 100])
def test_a_full_disk_leaves_what_was_there(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "dump.json"
    file = GrowingFile(path, {"task": "tensor"}, "data")
    file.add([("a", b"1")])
    whole = path.stat().st_size

    def pwrite(handle: int, data: bytes, offset: int) -> int:
        # What lies inside the file has its place on the disk; beyond it only some bytes are left.
        some = data[: max(whole + room - offset, 0)]
        if not some:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(handle, some, offset)

    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space left"):
        file.add([("b", b'"' + b"x" * 1000 + b'"')])
    assert read(path) == {"task": "tensor", "data": {"a": 1}}


def test_a_dump_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text("mine")
    with pytest.raises(FileExistsError):
        GrowingFile(tmp_path / "dump.json", {}, "data")


def test_bytes_that_are_no_text_are_written_as_their_codes(tmp_path: Path) -> None:
    """Paths of files may hold some."""
    write_json(tmp_path / "stack.json", {"0": [["a"], ["File /\udcff\u00e9.py"]]})
    assert (tmp_path / "stack.json").read_text() == '{"0": [["a"], ["File /\\udcff\u00e9.py"]]}'
