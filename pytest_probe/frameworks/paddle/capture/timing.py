"""Paddle's calls, timed: the functions that are replaced, and their names, are those of a capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from pytest_probe.capture.bindings import Function
from pytest_probe.capture.framework import Timing
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import DeviceClock, WaitingClock
from pytest_probe.capture.replaced import ReplacedTiming
from pytest_probe.frameworks.paddle.capture.names import BACKWARDS, COMPILED_METHODS, builds_graph, recorded_functions


class PaddleTiming(ReplacedTiming):
    framework = "paddle"
    tensor = paddle.Tensor
    compiled_methods = COMPILED_METHODS
    compiles = staticmethod(builds_graph)

    def __init__(self, stopwatch: Stopwatch) -> None:
        named = [(function, rule.name) for function, rule in recorded_functions(lambda name: True) if rule.name]
        named += [(function, name) for name, function in BACKWARDS.items()]
        clock = _clock(stopwatch)
        super().__init__(stopwatch, named, [paddle.Tensor], clock, lambda: _ahead() and paddle.device.synchronize())
        stopwatch.versions["paddle"] = str(paddle.__version__)
        if stopwatch.backward:
            stopwatch.tell(
                "paddle",
                "pytest-probe: Paddle's graph has no hooks that times could be taken in: its whole backward is one row",
            )

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        unseen = "what runs inside paddle.jit.to_static is one row"
        with self.away(
            "paddle.jit.to_static", f"pytest-probe: {unseen}; run the program without it to see the calls inside"
        ):
            return original(compiled, *args, **kwargs)


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
