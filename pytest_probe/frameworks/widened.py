"""What a user's reference meets while it runs: narrower dtypes that it writes down give that of a float64 or float32
run, and its borders round where the run asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

from pytest_probe.model.run import Way

# A framework's context in which casts and factories of narrower dtypes give this one; the list gets an item for each.
Widening: TypeAlias = Callable[[str, list[str]], AbstractContextManager[object]]


class _Running(threading.local):
    dtype = ""
    border = ""


_running = _Running()


@contextmanager
def reference_run(way: Way) -> Iterator[None]:
    """A reference runs in here, in this way."""
    before = _running.dtype, _running.border
    _running.dtype, _running.border = way.dtype, way.border
    try:
        yield
    finally:
        _running.dtype, _running.border = before


def border_dtype() -> str:
    """What a border rounds to in the run that is under way; "" where it changes nothing."""
    return _running.border


class Widened:
    """A user's reference. Where it runs in float64, what it casts to a narrower floating dtype, or makes in one, is
    float64 too, and float32 in a run of that: a last cast to 16 bit would hide there what the run shows. Integers, bool
    and 8-bit formats stay. In the case's own dtypes it runs as it is written."""

    def __init__(self, function: Callable[..., Any], widening: Widening) -> None:
        self._function = function
        self._widening = widening
        self.casts: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _running.dtype:
            return self._function(*args, **kwargs)
        self.casts = []
        with self._widening(_running.dtype, self.casts):
            return self._function(*args, **kwargs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the last run in float64 says of itself."""
        count = len(self.casts)
        return (f"reference widened at {count} {'cast' if count == 1 else 'casts'}",) if count else ()
