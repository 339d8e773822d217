"""Rows of numbers that a device computes: two pages of them, each copied as a whole while the program goes on.

The program's streams are waited for by a stream of this module's own, and by no host thread.

A row has COLUMNS numbers, then a sample. The numbers are the largest and the smallest finite element, the sum and the
sum of squares of the finite ones, how many are NaN, inf and -inf, and the sum of squares times SCALE squared. Extremes
of integers are the bits of an int64.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch

COLUMNS, SAMPLE = 8, 256
SCALE = 2.0**-600  # by which elements of float64 are multiplied, so that their squares do not overflow
ROWS = 4096  # of a page; of 264 numbers each, 8.7 MB on the device and as much on the host
_PAGES = 2
# Takes the rows of a page as they came, with what waits for each.
Arrived: TypeAlias = Callable[[np.ndarray, list[Any]], None]


class _Page(msgspec.Struct):
    """rows on the device and their copy; what waits for each row that is taken; the streams that write to them, by
    number; the event after the copy, None where the device has no streams of its own."""

    rows: torch.Tensor
    host: torch.Tensor
    waiting: list[Any]
    streams: dict[int, Any]
    copied: Any = None

    def has_arrived(self) -> bool:
        return self.copied is None or bool(self.copied.query())


# Pages that no capture uses: memory that is pinned anew takes milliseconds.
_idle: dict[tuple[torch.device, tuple[int, int]], list[_Page]] = {}


class Rows:
    """The rows of one device. Whoever writes to one holds `lock` from `take` until the device
    knows of it."""

    def __init__(self, device: torch.device, arrived: Arrived, rows: int = ROWS) -> None:
        self.device = device
        self.lock = threading.Condition(threading.Lock())
        self._shape = (rows, COLUMNS + SAMPLE)
        self._arrived = arrived
        self._pages = self._reading = 0
        self._free: list[_Page] = []
        self._sent: deque[_Page] = deque()
        self._page: _Page | None = None
        try:
            self._side: Any = torch.Stream(device)
        except RuntimeError:  # as MPS, which has one stream
            self._side = None

    def take(self, stream: Any, of: Sequence[Any]) -> tuple[torch.Tensor, int]:
        """The rows, and the number of the first row that the device writes to on this stream, one for each that
        waits: at most a page."""
        while self._page is None or len(self._page.waiting) + len(of) > self._shape[0]:
            if self._page is not None:
                self.send()
            elif self._free or self._pages < _PAGES:
                self._page = self._free.pop() if self._free else self._another_page()
            else:
                self._read()
        page = self._page
        page.streams[stream.stream_id] = stream
        page.waiting.extend(of)
        return page.rows, len(page.waiting) - len(of)

    def _another_page(self) -> _Page:
        idle = _idle.get((self.device, self._shape))
        if idle:
            page = idle.pop()
        else:
            # Of this module's stream, so that nothing of the program's still writes to this memory; and to be written
            # to from outside of inference mode as well.
            with torch.inference_mode(False), self._aside():
                dtype = torch.float32 if self.device.type == "mps" else torch.float64
                rows = torch.empty(self._shape, dtype=dtype, device=self.device)
                page = _Page(rows, _pinned_empty(self._shape, dtype), [], {})
        self._pages += 1
        return page

    def send(self) -> None:
        """Begin to copy the rows that are taken."""
        page, self._page = self._page, None
        if page is None:
            return
        count = len(page.waiting)
        if self._side is None:
            page.host[:count].copy_(page.rows[:count])
        else:
            for stream in page.streams.values():
                self._side.wait_event(stream.record_event())
            with self._aside():
                page.host[:count].copy_(page.rows[:count], non_blocking=True)
            page.copied = self._side.record_event()
        self._sent.append(page)

    def _read(self) -> None:
        """Hand over the oldest page that was sent, and wait for its copy alone; or wait for the thread that does."""
        if not self._sent:
            self.lock.wait()
            return
        page = self._sent.popleft()
        self._reading += 1
        self.lock.release()
        try:
            if page.copied is not None:
                page.copied.synchronize()
            self._arrived(page.host[: len(page.waiting)].numpy(), page.waiting)
        finally:
            self.lock.acquire()
            self._reading -= 1
            page.waiting, page.streams = [], {}
            self._free.append(page)
            self.lock.notify_all()

    def settle(self) -> None:
        """Hand over all rows that were taken before."""
        with self.lock:
            self.send()
            while self._sent or self._reading:
                self._read()
            _idle.setdefault((self.device, self._shape), []).extend(self._free)
            self._pages, self._free = self._pages - len(self._free), []

    def waits(self) -> bool:
        """Would `settle` wait for the device?"""
        return self._page is not None or not all(page.has_arrived() for page in self._sent)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """On the stream of this module."""
        if self._side is None:
            yield
            return
        with on_device(self.device):
            before = torch.accelerator.current_stream(self.device)
            torch.accelerator.set_stream(self._side)
            try:
                yield
            finally:
                torch.accelerator.set_stream(before)


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """In memory that a device copies from and to while the program goes on, where the device's backend has such."""
    with suppress(RuntimeError):
        return tensor.pin_memory()
    return tensor


def _pinned_empty(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    with suppress(RuntimeError):
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
    return torch.empty(shape, dtype=dtype, device="cpu")


_HERE = nullcontext()


def on_device(device: torch.device) -> AbstractContextManager[None]:
    """Where what is launched goes to this device, which may not be the program's current one."""
    other = device.index is not None and device.index != torch.accelerator.current_device_index()
    return _on_other_device(device.index) if other else _HERE


@contextmanager
def _on_other_device(index: int) -> Iterator[None]:
    before = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(index)
    try:
        yield
    finally:
        torch.accelerator.set_device_index(before)
