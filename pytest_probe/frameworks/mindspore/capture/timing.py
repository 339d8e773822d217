"""MindSpore's calls, timed: the functions that are replaced, and their names, are those of a capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore

from pytest_probe.capture.bindings import Function
from pytest_probe.capture.framework import Timing
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.replaced import ReplacedTiming
from pytest_probe.frameworks.mindspore.capture.hooks import COMPILED_METHODS, compiled_name
from pytest_probe.frameworks.mindspore.capture.names import CLASSES, functions


class MindSporeTiming(ReplacedTiming):
    """Each call waits for its kernel, unless the stopwatch is asynchronous: to ask for the device after each would take
    milliseconds. This cannot be changed once MindSpore has computed."""

    framework = "mindspore"
    tensor = mindspore.Tensor
    compiled_methods = COMPILED_METHODS

    def __init__(self, stopwatch: Stopwatch) -> None:
        if not stopwatch.asynchronous:
            mindspore.runtime.launch_blocking()
        super().__init__(
            stopwatch,
            [(function, name) for function, name, _ in functions()],
            CLASSES,
            None,
            mindspore.runtime.synchronize,
        )
        stopwatch.versions["mindspore"] = mindspore.__version__
        if stopwatch.backward:
            stopwatch.tell(
                "mindspore",
                "pytest-probe: MindSpore's graph has no hooks that times could be taken in: its backward has no row",
            )

    def compiled(self, original: Function, compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        shown = compiled_name(compiled) or "MindSpore's own"
        words = (
            f"pytest-probe: {shown} is compiled, and is one row; run the program without jit to see the calls inside"
        )
        with self.away(f"Jit.{shown}", words):
            return original(compiled, *args, **kwargs)


made: Callable[[Stopwatch], Timing] = MindSporeTiming  # see capture.framework.timing
