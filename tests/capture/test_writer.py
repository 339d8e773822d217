from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_probe.capture import writer
from pytest_probe.capture.snapshot import NamedEntry


def test_a_device_that_is_behind_does_not_stop_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is waited for where more bytes wait than may."""
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
