"""Which side of a case runs at this moment. It is told to one listener, since native code may end the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

# "" is code of ours or of the project's, which is neither side's.
Side: TypeAlias = Literal["", "device", "reference"]
Listener: TypeAlias = Callable[[Side], None]


class _Sides:
    current: Side = ""
    listener: Listener | None = None


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """In here the listener is called before each side runs, and after it."""
    before, _Sides.listener = _Sides.listener, listener
    try:
        yield
    finally:
        _Sides.listener = before


@contextmanager
def device() -> Iterator[None]:
    """The device under test runs in here."""
    yield from _running("device")


@contextmanager
def reference() -> Iterator[None]:
    """The reference runs in here, or a run of evidence; inside `device` it is that one's."""
    yield from _running(_Sides.current or "reference")


def _running(side: Side) -> Iterator[None]:
    before = _Sides.current
    _set(side)
    try:
        yield
    finally:
        _set(before)


def _set(side: Side) -> None:
    _Sides.current = side
    if _Sides.listener is not None:
        _Sides.listener(side)
