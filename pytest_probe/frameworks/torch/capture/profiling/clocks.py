"""How long a device takes that computes while the host goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import Api, DeviceClock, WaitingClock, now


def clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where there is no accelerator."""
    if not torch.accelerator.is_available():
        return None
    return _Issued(stopwatch) if stopwatch.asynchronous else WaitingClock(torch.accelerator.synchronize, _allocated())


def waited() -> int:
    """Wait for the device; for how long, in ns."""
    begin = now()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return now() - begin


def _allocated() -> Callable[[], int] | None:
    """What tells the bytes that the device's allocator has handed out; None where it does not."""
    try:
        torch.accelerator.memory_allocated()
    except (RuntimeError, NotImplementedError):
        return None
    return torch.accelerator.memory_allocated


class _Issued:
    """Waits at the end only. CUDA's events tell how long the device took, and are read then."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        allocated = _allocated()
        self._allocated = allocated or (lambda: 0)
        self.memory = allocated is not None
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
