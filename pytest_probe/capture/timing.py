"""What a program calls to time itself: `timing`, and apitimewrapper's `start_analysis` and `end_analysis`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_probe import frameworks
from pytest_probe.capture.children import watch_imports
from pytest_probe.capture.debugger import safely
from pytest_probe.capture.framework import Timing, recording
from pytest_probe.capture.profiling import report
from pytest_probe.capture.profiling.stopwatch import Spent, Stopwatch
from pytest_probe.capture.profiling.track import Api
from pytest_probe.errors import NotStarted, SettingsError

# The timings under way, the last one last.
_running: list[Stopwatch] = []


class Timed:
    """A timed stretch of a program; its text is the table."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """A part of the program, which gets a table of its own."""
        self._stopwatch.begin_section(name)
        try:
            yield
        finally:
            self._stopwatch.end_section()

    def rows(self, section: str = "") -> list[tuple[Api, Spent]]:
        """What each API took, in the whole stretch or in a section, by its path (`step/forward`). Raises KeyError for a
        section that there is not."""
        return (self._stopwatch.sections[section] if section else self._stopwatch.whole).rows()

    def write(self, folder: str | os.PathLike[str]) -> None:
        """time.jsonl and trace.json. Raises SettingsError where the folder holds a run, or cannot be written."""
        report.write(self._stopwatch, report.take(os.fspath(folder)))

    def __str__(self) -> str:
        return report.text(self._stopwatch)


@contextmanager
def timing(
    nested: bool = False,
    asynchronous: bool = False,
    *,
    backward: bool = False,
    by_shape: bool = False,
    framework: str | None = None,
) -> Iterator[Timed]:
    """Time each API call of the frameworks that are imported until its end, or of one framework.

    nested: calls inside calls get rows of their own; asynchronous: a device is waited for at the end alone; backward:
    the gradients of calls get rows; by_shape: so do dtypes and shapes. Raises SettingsError for no framework that can
    be timed, and Unsupported where it is not installed; nothing else ever reaches the program.
    """
    stopwatch = Stopwatch(nested, asynchronous, backward, by_shape, traced=True)
    with running(stopwatch, framework):
        yield Timed(stopwatch)


@contextmanager
def running(stopwatch: Stopwatch, framework: str | None = None) -> Iterator[None]:
    """Time what is called meanwhile with the frameworks that are imported before or meanwhile; see timing."""
    names = {frameworks.MODULES[name]: name for name in frameworks.RECORDED if framework in (None, name)}
    if not names:
        raise SettingsError("framework", framework, f"give one of {', '.join(frameworks.RECORDED)}")
    hooks: list[Timing] = []

    def imported(module: str) -> None:
        hooks.append(recording(names[module]).timing(stopwatch))
        hooks[-1].begin()

    with watch_imports(names, imported):
        stopwatch.start()
        _running.append(stopwatch)
        started = True
        try:
            yield
        except NotStarted:
            started = False
            raise
        finally:
            _running.remove(stopwatch)
            for one in reversed(hooks):
                safely(one.end)
            safely(stopwatch.finish)
            if started and not hooks:
                stopwatch.tell(
                    "imports", f"pytest-probe: nothing was timed: the program imported none of {', '.join(names)}"
                )


def start_analysis(name: str = "") -> None:
    """A section begins, inside the open ones. Where nothing is timed, nothing happens."""
    for stopwatch in _running[-1:]:
        stopwatch.begin_section(name)


def end_analysis() -> None:
    """The section that began last ends. Without one it warns."""
    for stopwatch in _running[-1:]:
        stopwatch.end_section()
