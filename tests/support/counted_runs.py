"""How many runs of pytest and of programs the tests start, by file, and which tests take most CPU time:
`pytest -p tests.support.counted_runs`.

A run's own workers are no runs, and neither is the process that programs are forked from. The time of workers that a
forked program starts is not counted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from types import FrameType
from typing import Any

import pytest

from tests.support import forks

SLOWEST = 40
BEGAN = pytest.StashKey[float]()

_started: Counter[str] = Counter()


def _seconds() -> float:
    """CPU time of this process and of all that have ended."""
    return sum(os.times()[:4]) + forks.Fork.seconds


def _counting(method: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if _of_a_test(sys._getframe(1)) and "fork_server.py" not in str(args[1:2]):
            _started[kind] += 1
        return method(*args, **options)

    return call


def _of_a_test(frame: FrameType | None) -> bool:
    """Is it a test, or what a test calls, that starts this, and not the package, execnet or a framework?"""
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("subprocess", "contextlib"):
        frame = frame.f_back
    name = "" if frame is None else frame.f_globals.get("__name__", "")
    return name.startswith(("tests.", "_pytest.pytester")) and (frame is None or frame.f_code.co_name != "begin")


def pytest_configure() -> None:
    pytest.Pytester.inline_run = _counting(pytest.Pytester.inline_run, "pytest")  # type: ignore[method-assign]
    subprocess.Popen.__init__ = _counting(subprocess.Popen.__init__, "programs")  # type: ignore[method-assign]
    forks.Fork.__init__ = _counting(forks.Fork.__init__, "programs")  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _started.clear()
    item.stash[BEGAN] = _seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append(("runs", dict(_started)))
        item.user_properties.append(("seconds", _seconds() - item.stash[BEGAN]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: dict[str, Counter[str]] = {}
    seconds: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in chain(*terminalreporter.stats.values()):
        if getattr(report, "when", "") == "teardown":
            name, properties = report.nodeid.partition("::")[0], dict(report.user_properties)
            found.setdefault(name, Counter()).update(properties["runs"])
            seconds[report.nodeid] = properties["seconds"]
            files[name] += properties["seconds"]
    rows = sorted(((sum(each.values()), name, each) for name, each in found.items() if each), reverse=True)
    terminalreporter.section("runs that tests started, and seconds of CPU time")
    for total, name, each in rows:
        terminalreporter.line(f"{total:6} {files[name]:7.1f} s {name} ({each['pytest']} in this process)")
    terminalreporter.line(f"{sum(row[0] for row in rows):6} {files.total():7.1f} s all")
    for name, taken in seconds.most_common(SLOWEST):
        terminalreporter.line(f"{taken:7.1f} s {name}")
