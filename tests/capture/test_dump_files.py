from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.capture import writer
from pytest_probe.capture.dump_files import GrowingFile, write_json
from pytest_probe.capture.snapshot import NamedEntry


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
    write_json(tmp_path / "stack.json", {"0": [["a"], ["File /\udcff\u00e9.py"]]})
    assert (tmp_path / "stack.json").read_text() == '{"0": [["a"], ["File /\\udcff\u00e9.py"]]}'


def test_a_device_that_is_behind_does_not_stop_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_QUEUE_BYTES", 100)
    monkeypatch.setattr(writer, "_LOOK_SECONDS", 0.01)
    written: list[str] = []

    def add(entries: Sequence[NamedEntry], save: Callable[[Any, str], None]) -> None:
        written.extend(entry.name for entry in entries)

    def nothing(*args: object) -> None:
        """Both fakes need no more."""

    files: Any = SimpleNamespace(check_room=nothing, open=nothing, add=add, close=nothing, end=lambda frames: 0)
    hooks: Any = SimpleNamespace(
        snapshots=SimpleNamespace(waits=lambda: True, settle=nothing), stacks=SimpleNamespace(lines=dict)
    )
    one = writer.Writer([tmp_path], files, hooks, nothing)
    names = [f"Torch.sin.{number}.forward" for number in range(20)]

    def program() -> None:
        for name in names:
            one.put(NamedEntry(name, {}), 30)
        one.end()

    thread = threading.Thread(target=program, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert written == names
