"""Paddle's calls, timed: the functions that are replaced, and their names, are those of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle

from pytest_probe.capture.framework import Timing
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import DeviceClock, ShapeRows, WaitingClock, now
from pytest_probe.frameworks.paddle.capture.bindings import Bindings, CompiledRegions
from pytest_probe.frameworks.paddle.capture.hooks import like
from pytest_probe.frameworks.paddle.capture.names import RecordedFunctions

_FRAMEWORK = "paddle"
_modes: Any = paddle.base.framework.global_var
_BACKWARDS = (
    ("paddle.Tensor.backward", paddle.Tensor.backward),
    ("paddle.autograd.backward", paddle.autograd.backward),
    ("paddle.grad", paddle.grad),
)


class PaddleTiming:
    """Times Paddle's calls between begin and end, on all threads."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._clock = _clock(stopwatch)
        self._compiled = stopwatch.api(_FRAMEWORK, "paddle.jit.to_static")
        named = [(function, rule.name) for function, rule in RecordedFunctions(lambda name: True).rules if rule.name]
        named += [(function, name) for name, function in _BACKWARDS]
        self._bindings = Bindings([(one, self._replacement(one, name)) for one, name in named], [paddle.Tensor])
        self._regions = CompiledRegions(self._away)
        stopwatch.versions["paddle"] = str(paddle.__version__)
        if stopwatch.backward:
            stopwatch.tell(
                "paddle",
                "pytest-probe: Paddle's graph has no hooks that times could be taken in: its whole backward is one row",
            )

    def begin(self) -> None:
        self._bindings.put()
        self._regions.put()

    def end(self) -> None:
        self._regions.take_back()
        self._bindings.take_back()
        if self._stopwatch.asynchronous:
            self._stopwatch.waited = (self._stopwatch.waited or 0) + _waited()

    def _replacement(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        api = self._stopwatch.api(_FRAMEWORK, name, clock=self._clock)
        track, by_shape = self._stopwatch.track, self._stopwatch.by_shape
        rows = ShapeRows(api, paddle.Tensor)

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if _modes._dygraph_tracer_ is None:
                # A static graph is built: nothing is computed.
                return function(*args, **kwargs)
            return track().call(rows.of(args, kwargs) if by_shape else api, function, args, kwargs)

        return like(function, replacement)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Around a region that Paddle compiles, where its own functions are in their places again."""
        self._stopwatch.tell(
            "to_static",
            "pytest-probe: what runs inside paddle.jit.to_static is one row; run the program without it to see the "
            "calls inside",
        )
        track = self._stopwatch.track()
        track.begin(self._compiled)
        self._bindings.take_back()
        try:
            yield
        finally:
            self._bindings.put()
            track.note(self._compiled, *track.end(self._compiled))


def made(stopwatch: Stopwatch) -> Timing:
    """See capture.framework.timing."""
    return PaddleTiming(stopwatch)


def _clock(stopwatch: Stopwatch) -> DeviceClock | None:
    """What each first-level call asks; None where calls are done when they return."""
    if stopwatch.asynchronous or not _ahead():
        return None
    allocated = paddle.device.cuda.memory_allocated if paddle.is_compiled_with_cuda() else None
    return WaitingClock(paddle.device.synchronize, allocated)


def _waited() -> int:
    """Wait for the device; for how long, in ns."""
    begin = now()
    if _ahead():
        paddle.device.synchronize()
    return now() - begin


def _ahead() -> bool:
    """Does the device go on while the host does?"""
    return bool(paddle.device.get_device() != "cpu")
