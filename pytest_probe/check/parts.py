"""Where the time of a case goes: seconds of its parts, for the end of a run with --durations and for results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pytest_probe.model.measurement import Part


class _Spent:
    """Seconds by part: what a part takes inside another one counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside = 0.0


_SPENT: ContextVar[_Spent | None] = ContextVar("pytest_probe_parts", default=None)


@contextmanager
def parts_of_case() -> Iterator[Callable[[], dict[str, float]]]:
    """A case is checked in here. Gives what its parts took so far, in the order in which they began."""
    spent = _Spent()
    token = _SPENT.set(spent)
    try:
        yield lambda: {name: round(seconds, 6) for name, seconds in spent.seconds.items()}
    finally:
        _SPENT.reset(token)


@contextmanager
def spending(part: Part) -> Iterator[None]:
    """What runs in here is this part of the case, if one is checked on this thread."""
    spent = _SPENT.get()
    if spent is None:
        yield
        return
    outer, spent.inside = spent.inside, 0.0
    spent.seconds.setdefault(part, 0.0)
    began = time.perf_counter()
    try:
        yield
    finally:
        whole = time.perf_counter() - began
        spent.seconds[part] += whole - spent.inside
        spent.inside = outer + whole
