"""What a checking process takes from a folder in which anything may lie."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_probe.capture.online.message import Entry, Goodbye, Sender
from pytest_probe.capture.online.shared_folder import SharedFolder
from pytest_probe.features.online import folder_source
from pytest_probe.features.online.folder_source import FolderSource, Senders

SENDER = Sender("0123abcd", 0, 1)
RANKS = [Sender(f"{rank:08x}", rank, 3) for rank in range(3)]


def entry(call: int, sender: Sender = SENDER) -> Entry:
    return Entry(sender, 0, call, f"Torch.add.{call}.forward", "{}", {})


@pytest.fixture
def program(tmp_path: Path) -> SharedFolder:
    """It sent three calls, and lives."""
    made = SharedFolder(tmp_path, SENDER.run, limit=1 << 30, waits=True)
    for call in range(3):
        assert made.put(entry(call), {"input.0": np.zeros(4)})
    return made


def judged(source: FolderSource, count: int = 1 << 30) -> list[int]:
    """The calls that it takes and judges, until there are none, or so many."""
    found: list[int] = []
    while len(found) < count and (received := source.take()):
        found.append(received.entry.call)
        source.judged(received)
    return found


def test_all_that_was_sent_is_judged_and_nothing_is_left(program: SharedFolder, tmp_path: Path) -> None:
    source = FolderSource(tmp_path)
    assert judged(source) == [0, 1, 2]
    assert not source.finished()
    program.close(Goodbye(SENDER, 3, 0))
    for _ in range(3):
        judged(source)
    assert source.finished()
    assert (source.senders.lost(source.done), source.refused) == ([], [])
    source.close()
    assert list(tmp_path.iterdir()) == []


def test_a_program_of_another_container_lives(program: SharedFolder, tmp_path: Path) -> None:
    """The machine's name is the same, and its process has a number that is nobody's here."""
    program._beat.path.write_text(f"{platform.node()} {2**22 + 1}")
    source = FolderSource(tmp_path)
    assert judged(source) == [0, 1, 2]
    judged(source)
    assert not source.finished()


def test_what_was_sent_and_never_came(program: SharedFolder, tmp_path: Path) -> None:
    next(tmp_path.glob("000000001-*")).unlink()
    program.close(Goodbye(SENDER, 3, 0))
    source = FolderSource(tmp_path)
    assert judged(source) == [0, 2]
    assert source.senders.lost(source.done) == ["rank 0 has ended: 2 of the 3 entries that it sent were judged"]


def test_odd_files_hold_nobody(program: SharedFolder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trainer-11111111.alive")
    (tmp_path / "trainer-22222222.alive").symlink_to("/dev/zero")
    (tmp_path / "checker-33333333.alive").write_bytes(b"\xff\xfe 1")
    (tmp_path / "checker-44444444.alive").write_text(f"{platform.node()} {'9' * 6000}")
    os.mkfifo(tmp_path / f"{SENDER.run}-55555555.done")
    (tmp_path / f"{SENDER.run}-66666666.done").write_text("9" * 6000)
    (tmp_path / "000000007-0123abcd-0-0-7-forward.safetensors").mkdir()
    os.mkfifo(tmp_path / "000000008-ffffffff-goodbye.safetensors")
    (tmp_path / "outside").write_bytes(next(tmp_path.glob("000000000-*")).read_bytes())
    (tmp_path / "000000009-0123abcd-0-0-0-forward.safetensors").symlink_to(tmp_path / "outside")
    program.close(Goodbye(SENDER, 3, 0))
    source = FolderSource(tmp_path)
    assert judged(source) == [0, 1, 2]
    for _ in range(3):
        assert judged(source) == []
    assert source.finished()
    assert source.senders.lost(source.done) == []
    assert len(source.refused) == 3
    assert all("expected a file" in each for each in source.refused)


def test_a_file_by_the_name_of_another_message(program: SharedFolder, tmp_path: Path) -> None:
    first = next(tmp_path.glob("000000000-*"))
    first.rename(first.with_name(first.name.replace("000000000-0123abcd", "000000009-ffffffff")))
    source = FolderSource(tmp_path)
    assert judged(source) == [1, 2]
    assert "its name is that of another message" in source.refused[0]


def test_files_that_cannot_be_taken_are_said_once(
    program: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sticky folder, whose files are another user's."""
    program.close(Goodbye(SENDER, 3, 0))
    monkeypatch.setattr(os, "rename", _raises(PermissionError(errno.EPERM, "Operation not permitted")))
    source = FolderSource(tmp_path)
    for _ in range(3):
        assert judged(source) == []
    assert len(source.refused) == 3
    assert "it cannot be taken (Operation not permitted)" in source.refused[0]
    assert source.finished()
    assert source.senders.lost(source.done) == ["rank 0 has ended: 0 of the 3 entries that it sent were judged"]


def test_too_many_open_files_is_later(program: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FolderSource(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(folder_source, "read", _raises(OSError(errno.EMFILE, "Too many open files")))
        assert judged(source) == []
    assert judged(source) == [0, 1, 2]
    assert source.refused == []


@pytest.mark.parametrize("noted", [False, True])
def test_what_a_killed_checker_had(
    program: SharedFolder, tmp_path: Path, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = FolderSource(tmp_path)
    assert judged(killed, 1) == [0]
    received = killed.take()
    assert received is not None
    if noted:
        killed.note(SENDER.run, 1)
    killed._beat.close()
    program.close(Goodbye(SENDER, 3, 0))
    second = FolderSource(tmp_path)
    assert judged(second) + judged(second) == ([2] if noted else [2, 1])
    judged(second)
    assert second.senders.lost(second.done) == []
    assert second.finished()


def _raises(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_a_goodbye_that_is_none(program: SharedFolder, tmp_path: Path) -> None:
    (tmp_path / f"000000003-{SENDER.run}-goodbye.safetensors").write_bytes(b"no message")
    source = FolderSource(tmp_path)
    assert judged(source) == [0, 1, 2]
    judged(source)
    assert len(source.refused) == 1
    assert not source.finished()


def test_all_that_train_together_say_goodbye() -> None:
    senders = Senders()
    assert not senders.all_ended
    for number, sender in enumerate(RANKS):
        senders.came(entry(0, sender), number)
    for sender in RANKS[:2]:
        senders.ended(Goodbye(sender, 1, 2))
        assert not senders.all_ended
    for lives in (False, False, True, False):
        senders.alive(RANKS[2].run, lives)
        assert senders.all_ended is not lives
    assert senders.lost(lambda run: {7}) == [
        "rank 2 went without a goodbye: 1 of the 3 entries that it sent were judged"
    ]


def test_what_another_host_judged_the_program_knows() -> None:
    senders = Senders()
    senders.ended(Goodbye(Sender("0123abcd", 4, 1), 5, 0))
    assert senders.lost(lambda run: {-3, 2, 3, 4}) == []
    assert senders.lost(lambda run: {-3, 1, 2, 4}) == ["rank 4 has ended: 4 of the 5 entries that it sent were judged"]


def test_a_rank_that_never_comes_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    senders = Senders()
    for sender in RANKS[:2]:
        senders.came(entry(0, sender))
        senders.ended(Goodbye(sender, 1, 0))
    assert not senders.all_ended
    monkeypatch.setattr(folder_source, "GONE_SECONDS", -1.0)
    assert senders.all_ended
    assert senders.lost(lambda run: {0}) == ["ranks that never came: 1"]
    senders.came(entry(0, RANKS[2]))
    assert not senders.all_ended
