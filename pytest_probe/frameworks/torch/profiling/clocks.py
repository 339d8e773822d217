"""How long a device takes that computes while the host goes on."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from pytest_probe.profiling.stopwatch import Stopwatch
from pytest_probe.profiling.track import Api, DeviceClock, now


def clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where there is no accelerator."""
    if not torch.accelerator.is_available():
        return None
    return _Issued(stopwatch) if stopwatch.asynchronous else _Waiting()


def waited() -> int:
    """Wait for the device; for how long, in ns."""
    begin = now()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return now() - begin


class _Allocator:
    """Bytes of the device's allocator, where it tells them."""

    def __init__(self) -> None:
        self.memory = True
        try:
            self._allocated()
        except (RuntimeError, NotImplementedError):
            self.memory = False

    def _allocated(self) -> int:
        return torch.accelerator.memory_allocated() if self.memory else 0


class _Waiting(_Allocator):
    """Waits for the device before and after a call, so that the host's time is the device's."""

    def before(self, api: Api) -> int:
        _synchronize()
        return self._allocated()

    def after(self, api: Api, token: int) -> int:
        _synchronize()
        return self._allocated() - token


class _Issued(_Allocator):
    """Waits at the end only. CUDA's events tell how long the device took, and are read then."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self._stopwatch = stopwatch
        self._events = torch.cuda.is_available()

    def before(self, api: Api) -> tuple[int, Any]:
        return self._allocated(), self._event()

    def after(self, api: Api, token: tuple[int, Any]) -> int:
        before, begun = token
        ended = self._event()
        if ended is not None:
            self._stopwatch.later(api, lambda: _elapsed(begun, ended))
        return self._allocated() - before

    def _event(self) -> Any:
        if not self._events:
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _elapsed(begun: Any, ended: Any) -> float:
    ended.synchronize()
    milliseconds: float = begun.elapsed_time(ended)
    return milliseconds * 1e6


def _synchronize() -> None:
    # An error of the device's is the program's, which meets it where it waits itself.
    with suppress(RuntimeError):
        torch.accelerator.synchronize()
