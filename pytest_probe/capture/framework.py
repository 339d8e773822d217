"""What a capture needs of a framework: files of its folder here, which are imported by the framework's name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pytest_probe import frameworks
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.hooks import CallHooks
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.snapshot import Snapshots
from pytest_probe.errors import SettingsError


class Timing(Protocol):
    """What times the calls of a running program."""

    def begin(self) -> None:
        """Time the program's calls from now on, on this thread and on threads that it starts."""

    def end(self) -> None:
        """Leave no hook. Where the stopwatch is asynchronous, wait for the device."""


class Recording(Protocol):
    """One framework, as a capture needs it: its `recording.py`."""

    def hooks(self, config: CaptureConfig, model: Any = None) -> CallHooks:
        """What sees the program's calls. Raises SettingsError for a model that cannot be recorded."""

    def timing(self, stopwatch: Stopwatch) -> Timing:
        """What times the program's calls."""

    def seed(self, seed: int, deterministic: bool) -> None:
        """Seed its generators; deterministic: use deterministic algorithms, and warn
        where an operation has none."""

    def sample(self, config: CaptureConfig, dtype: str, shape: tuple[int, ...]) -> tuple[Snapshots, Any]:
        """What takes snapshots, and such a tensor on the CPU."""

    def keep_dropped(self, wanted: bool) -> None:
        """Its dropouts keep all elements from now on; not wanted: as the framework has them. Raises SettingsError where
        they cannot be changed."""

    def after_optimizer_steps(self, step: Callable[[], None]) -> AbstractContextManager[None]:
        """Call step after each step of the optimizer that steps first."""


def recording(name: str = frameworks.DEFAULT) -> Recording:
    """What records the calls of a program. Raises as `part` does."""
    found: Recording = part(name, "recording")
    return found


def part(name: str, file: str) -> Any:
    """A file of a framework's folder. Raises SettingsError for no framework that can be recorded, Unsupported where it
    is not installed, FrameworkTooOld where a newer one is needed."""
    if name not in frameworks.RECORDED:
        raise SettingsError("framework", name, f"give one of {', '.join(frameworks.RECORDED)}")
    frameworks.check_installed(name)
    return importlib.import_module(f"pytest_probe.capture.{frameworks.MODULES[name]}.{file}")


def refuse_dropouts(wanted: bool) -> None:
    """Of a framework whose dropouts stay as they are, as `Recording.keep_dropped`."""
    if wanted:
        words = "only PyTorch's dropouts can be changed; put the model in eval mode"
        raise SettingsError("rm_dropout", wanted, words)
