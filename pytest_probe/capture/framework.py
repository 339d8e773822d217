"""What a capture needs of a framework: a class of its own `capture/`, which these functions import.

In: a framework's name. Out: `recording` gives what records its calls, `timing` what times them; `watch_imports` calls
back when the program has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Protocol

from pytest_probe import frameworks
from pytest_probe.capture.config import CaptureConfig
from pytest_probe.capture.profiling.stopwatch import Stopwatch
from pytest_probe.capture.recorder import Hooks


class Recording(Protocol):
    """One framework, as a capture needs it."""

    def hooks(self, config: CaptureConfig, model: Any = None) -> Hooks:
        """What sees the program's calls. Raises SettingsError for a model that cannot be recorded."""

    def seed(self, seed: int, deterministic: bool) -> None:
        """Seed its generators; deterministic: use deterministic algorithms, and warn where there is none."""

    def after_optimizer_steps(self, step: Callable[[], None]) -> AbstractContextManager[None]:
        """Call step after each step of the optimizer that steps first."""


class Timing(Protocol):
    """One framework, as the timing of a running program needs it."""

    def begin(self) -> None:
        """Time the program's calls from now on, on this thread and on threads that it starts."""

    def end(self) -> None:
        """Leave no hook. Where the stopwatch is asynchronous, wait for the device."""


def recording(name: str = frameworks.DEFAULT) -> Recording:
    """What records the calls of a program. Raises SettingsError for no framework that can be recorded, Unsupported
    where it is not installed, FrameworkTooOld where a newer one is needed."""
    made: Recording = frameworks.capture_part(name, "recording").made()
    return made


def timing(name: str, stopwatch: Stopwatch) -> Timing:
    """What times the calls of a program. Raises as `recording` does."""
    made: Timing = frameworks.capture_part(name, "timing").made(stopwatch)
    return made


class _Watch(MetaPathFinder):
    """Finds the modules of these names as the other finders do, and follows how they are executed."""

    def __init__(self, names: Collection[str], imported: Callable[[str], None]) -> None:
        self._names = names
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            self._follow(name, spec.loader)
        return spec

    def _follow(self, name: str, loader: Any) -> None:
        executed = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            executed(module)
            self._imported(name)

        loader.exec_module = exec_module


@contextmanager
def watch_imports(names: Collection[str], imported: Callable[[str], None]) -> Iterator[None]:
    """Call imported with each of these names once its module is imported, also with names that were imported before."""
    watch = _Watch(names, imported)
    sys.meta_path.insert(0, watch)
    try:
        for name in names:
            if name in sys.modules:
                imported(name)
        yield
    finally:
        sys.meta_path.remove(watch)
