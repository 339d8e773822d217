"""PaddleAPEX's Tracer: start() at the beginning of each step, stop() at its end."""

from __future__ import annotations

import os
import weakref

from pytest_probe.capture.apex_config import configured
from pytest_probe.capture.debugger import safely
from pytest_probe.capture.framework import recording
from pytest_probe.capture.recorder import Recorder
from pytest_probe.errors import SettingsError

_running: weakref.WeakSet[Tracer] = weakref.WeakSet()


class Tracer:
    """Records the steps of a Paddle program into PaddleAPEX's files, as PaddleAPEX is told to.

    config is a tool_config.yaml; None: what APEX_CONFIG_PATH names, else PaddleAPEX's defaults. Raises SettingsError
    for one that cannot be used, and while another Tracer runs; later nothing reaches the program.
    """

    def __init__(self, config: str | os.PathLike[str] | None = None) -> None:
        if _running:
            raise SettingsError("Tracer", "a second one", "stop the one that runs first")
        found = configured(config)
        self._recorder = Recorder(found, recording("paddle").hooks(found))

    def start(self) -> None:
        """A step begins; one that was not stopped ends before. Raises SettingsError while another Tracer runs."""
        if self in _running:
            self.stop()
        if _running:
            raise SettingsError("Tracer", "a second one", "stop the one that runs first")
        _running.add(self)
        safely(self._recorder.start)

    def stop(self) -> None:
        """The step ends: what was recorded of it is on the disk when this returns."""
        if self in _running:
            _running.discard(self)
            safely(self._recorder.stop)
            safely(self._recorder.end_step)
