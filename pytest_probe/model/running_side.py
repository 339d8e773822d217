"""Which side of a case runs at this moment. It is told to one listener, since native code may end the process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, ParamSpec, TypeAlias, TypeVar

# "" is code of ours or of the project's, which is neither side's.
Side: TypeAlias = Literal["", "device", "reference"]
Listener: TypeAlias = Callable[[Side], None]
Given = ParamSpec("Given")
Found = TypeVar("Found")


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


def device() -> AbstractContextManager[None]:
    """The device under test runs in here."""
    return _OnDevice()


class _OnDevice:
    def __enter__(self) -> None:
        self._before = _Sides.current
        _set("device")

    def __exit__(self, *raised: object) -> None:
        _set(self._before)


def reference(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The reference runs in this function, or a run of evidence; inside `device` it is that one's."""

    @functools.wraps(function)
    def running(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        before = _Sides.current
        _set(before or "reference")
        try:
            return function(*args, **kwargs)
        finally:
            _set(before)

    return running


def _set(side: Side) -> None:
    _Sides.current = side
    if _Sides.listener is not None:
        _Sides.listener(side)
