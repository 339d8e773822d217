"""How long a device takes that computes while the host goes on."""

from __future__ import annotations

from contextlib import suppress

import paddle

from pytest_probe.profiling.stopwatch import Stopwatch
from pytest_probe.profiling.track import Api, DeviceClock, now


def clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where calls are done when they return."""
    if stopwatch.asynchronous or not _ahead():
        return None
    return _Waiting()


def waited() -> int:
    """Wait for the device; for how long, in ns."""
    begin = now()
    if _ahead():
        paddle.device.synchronize()
    return now() - begin


class _Waiting:
    """Waits for the device before and after a call, so that the host's time is the device's."""

    def __init__(self) -> None:
        self.memory: bool = paddle.is_compiled_with_cuda()

    def before(self, api: Api) -> int:
        _synchronize()
        return self._allocated()

    def after(self, api: Api, token: int) -> int:
        _synchronize()
        return self._allocated() - token

    def _allocated(self) -> int:
        return int(paddle.device.cuda.memory_allocated()) if self.memory else 0


def _ahead() -> bool:
    """Does the device go on while the host does?"""
    return bool(paddle.device.get_device() != "cpu")


def _synchronize() -> None:
    # An error of the device's is the program's, which meets it where it waits itself.
    with suppress(RuntimeError, OSError):
        paddle.device.synchronize()
