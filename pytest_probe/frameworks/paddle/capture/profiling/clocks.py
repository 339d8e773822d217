"""How long a device takes that computes while the host goes on."""

from __future__ import annotations

import paddle

from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import DeviceClock, WaitingClock, now


def clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where calls are done when they return."""
    if stopwatch.asynchronous or not _ahead():
        return None
    allocated = paddle.device.cuda.memory_allocated if paddle.is_compiled_with_cuda() else None
    return WaitingClock(paddle.device.synchronize, allocated)


def waited() -> int:
    """Wait for the device; for how long, in ns."""
    begin = now()
    if _ahead():
        paddle.device.synchronize()
    return now() - begin


def _ahead() -> bool:
    """Does the device go on while the host does?"""
    return bool(paddle.device.get_device() != "cpu")
