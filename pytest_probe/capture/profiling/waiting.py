"""A device that is waited for around each call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pytest_probe.capture.profiling.track import Api


class WaitingClock:
    """Waits for the device before and after a call, so that the host's time is the device's. allocated gives the bytes
    that its allocator has handed out, None where it does not tell."""

    def __init__(self, synchronize: Callable[[], object], allocated: Callable[[], int] | None) -> None:
        self._synchronize = synchronize
        self._allocated = allocated or (lambda: 0)
        self.memory = allocated is not None

    def before(self, api: Api) -> int:
        self._wait()
        return self._allocated()

    def after(self, api: Api, token: int) -> int:
        self._wait()
        return self._allocated() - token

    def _wait(self) -> None:
        # An error of the device's is the program's, which meets it where it waits itself.
        with suppress(RuntimeError, OSError):
            self._synchronize()
