"""Paddle's calls, timed: the functions that are replaced, and their names, are those of a capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import paddle

from pytest_probe.capture.framework import Timing
from pytest_probe.capture.profiling.replaced import ReplacedTiming
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import DeviceClock, WaitingClock
from pytest_probe.frameworks.paddle.capture.names import RecordedFunctions, regions

_modes: Any = paddle.base.framework.global_var
_BACKWARDS = (
    ("paddle.Tensor.backward", paddle.Tensor.backward),
    ("paddle.autograd.backward", paddle.autograd.backward),
    ("paddle.grad", paddle.grad),
)


class PaddleTiming(ReplacedTiming):
    framework = "paddle"

    def __init__(self, stopwatch: Stopwatch) -> None:
        named = [(function, rule.name) for function, rule in RecordedFunctions(lambda name: True).rules if rule.name]
        named += [(function, name) for name, function in _BACKWARDS]
        clock = _clock(stopwatch)
        super().__init__(stopwatch, named, [paddle.Tensor], clock, lambda: _ahead() and paddle.device.synchronize())
        self._compiled = stopwatch.api(self.framework, "paddle.jit.to_static")
        self._regions = regions(self._away)
        stopwatch.versions["paddle"] = str(paddle.__version__)
        if stopwatch.backward:
            stopwatch.tell(
                "paddle",
                "pytest-probe: Paddle's graph has no hooks that times could be taken in: its whole backward is one row",
            )

    def compiles(self) -> bool:
        return _modes._dygraph_tracer_ is None

    def _away(self) -> AbstractContextManager[None]:
        return self.away(
            self._compiled,
            "pytest-probe: what runs inside paddle.jit.to_static is one row; run the program without it to see the "
            "calls inside",
        )


made: Callable[[Stopwatch], Timing] = PaddleTiming  # see capture.framework.timing


def _clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where calls are done when they return."""
    if stopwatch.asynchronous or not _ahead():
        return None
    allocated = paddle.device.cuda.memory_allocated if paddle.is_compiled_with_cuda() else None
    return WaitingClock(paddle.device.synchronize, allocated)


def _ahead() -> bool:
    """Does the device go on while the host does?"""
    return bool(paddle.device.get_device() != "cpu")
