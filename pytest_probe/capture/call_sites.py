"""Calls made as from the program's own lines: a warning names the line that called, and is shown once a line."""

from __future__ import annotations

import sys
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
        # Numbers stand for code, which hashing would read whole, and for its globals; both stay alive here.
        self._made: dict[tuple[int, int, int], tuple[CodeType, Calling]] = {}

    def of(self, frame: FrameType) -> Calling:
        """What makes a call as from here: of(frame)(function, args, kwargs)."""
        key = id(frame.f_code), frame.f_lasti, id(frame.f_globals)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = frame.f_code, _standing_in(frame)
        return made[1]

    def clear(self) -> None:
        """Let go of the program's code."""
        self._made.clear()


def below_the_program(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), which runs a program, below a frame that looks to `warnings` as no frame at all: without us
    there is none below a program."""
    file, line = ("sys", 1) if sys.version_info < (3, 13) else ("<sys>", 0)
    return _calling(file, "<module>", line, vars(sys))(function, args, {})


def _standing_in(frame: FrameType) -> Calling:
    return _calling(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno, frame.f_globals)


def _calling(file: str, name: str, line: int, own: dict[str, Any]) -> Calling:
    code = _call.__code__.replace(co_filename=file, co_name=name, co_firstlineno=line)
    STANDING_IN.add(code)
    return FunctionType(code, own)
