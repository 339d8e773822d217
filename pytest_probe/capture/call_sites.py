"""Calls made as from the program's own lines: a warning names the line that called, and is shown once a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeAlias

Calling: TypeAlias = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]

# The code of all frames that stand in for the program's: no traceback shows them.
STANDING_IN: set[CodeType] = set()


# Of one line, since all of it has the number of its first one.
def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: return function(*args, **kwargs)  # noqa: E501  # fmt: skip


class CallSites:
    """One function for each place in a program that calls: its frame has the file, line, name and globals of the
    program's, which is all that `warnings` reads, in Python and in C. A warning that names the caller's caller, or one
    above it, counts our frames as well."""

    def __init__(self) -> None:
        self._made: dict[tuple[CodeType, int, int], Calling] = {}

    def of(self, frame: FrameType) -> Calling:
        """What makes a call as from here: of(frame)(function, args, kwargs)."""
        key = frame.f_code, frame.f_lasti, id(frame.f_globals)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _standing_in(frame)
        return made

    def clear(self) -> None:
        """Let go of the program's code."""
        self._made.clear()


def _standing_in(frame: FrameType) -> Calling:
    of = frame.f_code
    code = _call.__code__.replace(co_filename=of.co_filename, co_name=of.co_name, co_firstlineno=frame.f_lineno)
    STANDING_IN.add(code)
    return FunctionType(code, frame.f_globals)
