from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pytest_probe.capture.torch import device_rows
from pytest_probe.capture.torch.device_rows import Rows

CPU = torch.device("cpu")


class Stream:
    """A stream that copies only when its event is waited for, as one far behind would."""

    def __init__(self, device: torch.device) -> None:
        self.waited = 0

    def wait_event(self, event: Any) -> None:
        self.waited += 1

    def record_event(self) -> Event:
        return Event()


class Event:
    def __init__(self) -> None:
        self.waited = False

    def query(self) -> bool:
        return self.waited

    def synchronize(self) -> None:
        self.waited = True


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    monkeypatch.setattr(torch, "Stream", Stream)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.accelerator, "set_stream", lambda stream: None)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, pin_memory=False, **given: empty(shape, **given))
    return {}


def rows_of(found: dict[int, float], size: int) -> Rows:
    def arrived(rows: np.ndarray, waiting: list[int]) -> None:
        for row, one in zip(rows, waiting, strict=True):
            assert one not in found
            found[one] = float(row[0])

    return Rows(CPU, arrived, size)


def write(rows: Rows, number: int) -> None:
    stream: Any = SimpleNamespace(stream_id=0, record_event=Event)
    with rows.lock:
        page, row = rows.take(stream, [number])
        page[row, 0] = number


@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 7, 100])
def test_more_rows_than_there_is_room_for(found: dict[int, float], count: int) -> None:
    rows = rows_of(found, 3)
    for number in range(count):
        write(rows, number)
        assert len(found) >= number + 1 - 6
    rows.settle()
    assert found == {number: number for number in range(count)}
    assert not rows.waits()


def test_threads_write_while_another_settles(found: dict[int, float]) -> None:
    rows = rows_of(found, 5)

    def write_many(first: int) -> None:
        for number in range(first, first + 200):
            write(rows, number)

    threads = [threading.Thread(target=write_many, args=(first,)) for first in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rows.settle()
    rows.settle()
    assert len(found) == 600
    assert all(number == value for number, value in found.items())


def test_what_is_not_copied_yet_is_waited_for(found: dict[int, float]) -> None:
    rows = rows_of(found, 3)
    write(rows, 7)
    assert rows.waits()
    with rows.lock:
        rows.send()
    assert rows.waits()
    assert found == {}
    rows.settle()
    assert found == {7: 7.0}


def test_memory_that_cannot_be_had_raises_each_time(found: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    rows = rows_of(found, 3)
    monkeypatch.setattr(device_rows, "_idle", {})
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", full)
        for number in range(5):
            with pytest.raises(torch.OutOfMemoryError):
                write(rows, number)
    write(rows, 5)
    rows.settle()
    assert found == {5: 5.0}


def test_another_capture_takes_the_pages_that_one_has_left(
    found: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_rows, "_idle", {})
    for first in (0, 10):
        rows = rows_of(found, 3)
        for number in range(first, first + 7):
            write(rows, number)
        rows.settle()
    assert [len(pages) for pages in device_rows._idle.values()] == [2]
    assert found == {number: float(number) for number in (*range(7), *range(10, 17))}
