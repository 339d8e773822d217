"""MindSpore's calls, timed: the functions that are replaced, and their names, are those of a capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore

from pytest_probe.capture.framework import Timing
from pytest_probe.capture.profiling.replaced import ReplacedTiming
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import now
from pytest_probe.frameworks.mindspore.capture.hooks import Regions, compiled
from pytest_probe.frameworks.mindspore.capture.names import CLASSES, functions


class MindSporeTiming(ReplacedTiming):
    """Each call waits for its kernel, unless the stopwatch is asynchronous: to ask for the device after each would take
    milliseconds. This cannot be changed once MindSpore has computed."""

    framework = "mindspore"

    def __init__(self, stopwatch: Stopwatch) -> None:
        if not stopwatch.asynchronous:
            mindspore.runtime.launch_blocking()
        super().__init__(stopwatch, [(function, name) for function, name, _ in functions()], CLASSES, None, _waited)
        self._regions = Regions(compiled(self._compiled))
        stopwatch.versions["mindspore"] = mindspore.__version__
        if stopwatch.backward:
            stopwatch.tell(
                "mindspore",
                "pytest-probe: MindSpore's graph has no hooks that times could be taken in: its backward has no row",
            )

    def begin(self) -> None:
        super().begin()
        self._regions.put()

    def end(self) -> None:
        self._regions.take_back()
        super().end()

    def _compiled(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        shown = name or "MindSpore's own"
        told = f"pytest-probe: {shown} is compiled, and is one row; run the program without jit to see the calls inside"
        with self.away(self._stopwatch.api(self.framework, f"Jit.{shown}"), told):
            return function(*args, **kwargs)


def made(stopwatch: Stopwatch) -> Timing:
    """See capture.framework.timing."""
    return MindSporeTiming(stopwatch)


def _waited() -> int:
    """Wait for the device; for how long, in ns."""
    begin = now()
    mindspore.runtime.synchronize()
    return now() - begin
