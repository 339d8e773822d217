"""What a capture needs of a framework: a file of its `capture/`, which is imported by the framework's name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pytest_probe import frameworks
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.hooks import CallHooks
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.snapshot import Snapshots


class Timing(Protocol):
    """What times the calls of a running program."""

    def begin(self) -> None:
        """Time the program's calls from now on, on this thread and on threads that it starts."""

    def end(self) -> None:
        """Leave no hook. Where the stopwatch is asynchronous, wait for the device."""


class Recording(Protocol):
    """One framework, as a capture needs it: its `capture/recording.py`."""

    def hooks(self, config: CaptureConfig, model: Any = None) -> CallHooks:
        """What sees the program's calls. Raises SettingsError for a model that cannot be recorded."""

    def timing(self, stopwatch: Stopwatch) -> Timing:
        """What times the program's calls."""

    def seed(self, seed: int, deterministic: bool) -> None:
        """Seed its generators; deterministic: use deterministic algorithms, and warn where there is none."""

    def sample(self, config: CaptureConfig, dtype: str, shape: tuple[int, ...]) -> tuple[Snapshots, Any]:
        """What takes snapshots, and such a tensor on the CPU."""

    def keep_dropped(self, wanted: bool) -> None:
        """Its dropouts keep all elements from now on; not wanted: as the framework has them. Raises SettingsError where
        they cannot be changed."""

    def after_optimizer_steps(self, step: Callable[[], None]) -> AbstractContextManager[None]:
        """Call step after each step of the optimizer that steps first."""


def recording(name: str = frameworks.DEFAULT) -> Recording:
    """What records the calls of a program. Raises SettingsError for no framework that can be recorded, Unsupported
    where it is not installed, FrameworkTooOld where a newer one is needed."""
    found: Recording = frameworks.capture_part(name, "recording")
    return found
