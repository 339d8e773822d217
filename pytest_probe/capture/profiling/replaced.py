"""Times calls of a framework that has no mode that sees them: its functions are replaced, as for a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.profiling.track import Api, DeviceClock, ShapeRows
from pytest_probe.capture.replaced import Bindings, Regions, like


class ReplacedTiming:
    """Times calls between begin and end, on all threads. functions have the names of their rows; classes are those
    whose methods are among them, the first that of tensors. clock is what each first-level call asks, synchronize waits
    for the device."""

    framework: str
    # What the framework compiles, which is one row.
    _regions: Regions
    # Does the framework build a graph now, and compute nothing? None where such calls are seen as they begin.
    compiles: Callable[[], bool] | None = None

    def __init__(
        self,
        stopwatch: Stopwatch,
        functions: Sequence[tuple[Callable[..., Any], str]],
        classes: Sequence[type],
        clock: DeviceClock | None,
        synchronize: Callable[[], object],
    ) -> None:
        self._stopwatch = stopwatch
        self._clock = clock
        self._synchronize = synchronize
        self._tensor = classes[0]
        self._bindings = Bindings([(one, self._replacement(one, name)) for one, name in functions], classes)

    def begin(self) -> None:
        self._bindings.put()
        self._regions.put()

    def end(self) -> None:
        self._regions.take_back()
        self._bindings.take_back()
        self._stopwatch.wait(self._synchronize)

    def _replacement(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        api = self._stopwatch.api(self.framework, name, clock=self._clock)
        track, by_shape, compiles = self._stopwatch.track, self._stopwatch.by_shape, self.compiles
        rows, local = ShapeRows(api, self._tensor), self._stopwatch.local

        # Each call waits for what is done here: what is known of this thread is looked up first.
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if compiles is not None and compiles():
                return function(*args, **kwargs)
            return (local.track or track()).call(rows.of(args, kwargs) if by_shape else api, function, args, kwargs)

        return like(function, replacement)

    @contextmanager
    def away(self, api: Api, message: str) -> Iterator[None]:
        """Around a region that the framework compiles, which is one row: its own functions are in their places again,
        and a warning says so."""
        self._stopwatch.tell(api.name, message)
        track = self._stopwatch.track()
        track.begin(api)
        self._bindings.take_back()
        try:
            yield
        finally:
            self._bindings.put()
            track.note(api, *track.end(api))
