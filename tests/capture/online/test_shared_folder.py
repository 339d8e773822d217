from __future__ import annotations

import logging
import os
import platform
import threading
from pathlib import Path

import numpy as np
import pytest

from pytest_probe.capture.online import shared_folder
from pytest_probe.capture.online.message import Entry, Goodbye, Sender, read
from pytest_probe.capture.online.sending import Pace
from pytest_probe.capture.online.shared_folder import Beat, SharedFolder, lives

SENDER = Sender("0123abcd", 0, 1)
TENSOR = {"input.0": np.zeros(1000, np.float64)}


def entry(call: int) -> Entry:
    return Entry(SENDER, 0, call, f"Torch.add.{call}.forward", "{}", {})


def sent(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def test_a_file_a_message(tmp_path: Path) -> None:
    to = SharedFolder(tmp_path, "0123abcd", limit=1 << 30, waits=True)
    assert to.put(entry(0), TENSOR)
    to.close(Goodbye(SENDER, 1, 0))
    first, last = sent(tmp_path)
    assert first.name == "000000000-0123abcd-0-0-0-forward.safetensors"
    assert read(first) == entry(0)
    assert read(last) == Goodbye(SENDER, 1, 0)
    assert not list(tmp_path.glob("*.alive"))


def test_what_finds_no_room_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = SharedFolder(tmp_path, "0123abcd", limit=20_000, waits=False)
    assert [to.put(entry(call), TENSOR) for call in range(4)] == [True, True, False, False]
    assert to.full
    sent(tmp_path)[0].unlink()
    # Where nothing is put, who asks sees it.
    monkeypatch.setattr(shared_folder, "_LOOK_SECONDS", 0.0)
    assert not to.full
    assert to.put(entry(4), TENSOR)
    assert not to.full


def test_it_waits_for_room(tmp_path: Path) -> None:
    to = SharedFolder(tmp_path, "0123abcd", limit=20_000, waits=True)
    for call in range(2):
        to.put(entry(call), TENSOR)
    waits = threading.Thread(target=to.put, args=(entry(2), TENSOR))
    waits.start()
    while not to.full:
        pass
    assert len(sent(tmp_path)) == 2
    sent(tmp_path)[0].rename(tmp_path / "taken.claimed")
    waits.join(10)
    assert len(sent(tmp_path)) == 2


def test_one_message_passes_however_large_it_is(tmp_path: Path) -> None:
    assert SharedFolder(tmp_path, "0123abcd", limit=1, waits=True).put(entry(0), TENSOR)


def test_without_a_checker_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_folder, "GONE_SECONDS", 0.1)
    to = SharedFolder(tmp_path, "0123abcd", limit=10, waits=True)
    with caplog.at_level(logging.ERROR):
        assert [to.put(entry(call), TENSOR) for call in range(3)] == [True, False, False]
    (line,) = caplog.messages
    assert "no checking host took a message; the program continues" in line


def test_a_folder_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "shared"
    to = SharedFolder(folder, "0123abcd", limit=1 << 30, waits=True)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert not to.put(entry(0), TENSOR)
    assert not to.put(entry(1), TENSOR)
    assert len(caplog.messages) == 1


def test_who_lives(tmp_path: Path) -> None:
    beat = Beat(tmp_path / "a.alive")
    now = beat.path.stat().st_mtime_ns
    assert lives(beat.path, now)
    assert not lives(beat.path, now + int(61e9))
    # Another container of this machine has processes of its own.
    (tmp_path / "b.alive").write_text(f"{platform.node()} {2**22 + 1}")
    assert lives(tmp_path / "b.alive", now)
    # What is no file, or was touched in another century, says nothing.
    os.mkfifo(tmp_path / "c.alive")
    assert not lives(tmp_path / "c.alive", now)
    (tmp_path / "d.alive").symlink_to(beat.path)
    assert not lives(tmp_path / "d.alive", now)
    assert not lives(beat.path, now - int(61e9))
    beat.close()
    assert not lives(beat.path, now)


def test_the_paces() -> None:
    full = False
    paces = {policy: Pace(policy, lambda: full) for policy in ("block", "drop", "sample")}

    def taken(calls: int) -> dict[str, int]:
        return {policy: sum(pace.wants("Torch.add") for _ in range(calls)) for policy, pace in paces.items()}

    assert taken(10) == {"block": 10, "drop": 10, "sample": 10}
    full = True
    found = taken(10_000)
    assert found["block"] == 10_000
    assert found["drop"] == 0
    assert 4 < found["sample"] < 100
    assert paces["drop"].left_out == 10_000
    full = False
    # What is sampled stays so: the host is as slow as it was.
    assert taken(4096) == {"block": 4096, "drop": 4096, "sample": 1}
    # Of an API that comes for the first time one call goes.
    assert paces["sample"].wants("Torch.mul")
