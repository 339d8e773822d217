"""Python frames of a recorded program: frames that we add, frames that we remove from tracebacks, and its call stacks.

A call is made from a frame that looks like the program's own line, so that a warning names the line that called.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeAlias

from pytest_probe.capture import kernel

# What a call is given.
Args: TypeAlias = Sequence[Any]
Kwargs: TypeAlias = Mapping[str, Any]
Calling: TypeAlias = Callable[[Callable[..., Any], Args, Kwargs], Any]

# The code of all frames that imitate the program's: no traceback shows them.
_PROXY_CODE: set[CodeType] = set()
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
# Functions with which a framework asks who wants a call. The function that asks then runs once more inside.
ASKING_CODE: set[CodeType] = set()
# Our code here runs between the program and a framework.
_HERE = os.path.join(os.path.dirname(__file__), "")


# On one line, since all of it must have the number of the first line.
def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: return function(*args, **kwargs)  # noqa: E501  # fmt: skip


class CallSites:
    """One function for each place in a program that calls: its frame has the file, line, name and globals of the
    program's, which is all that `warnings` reads, in Python and in C. A warning that names the caller's caller, or one
    above it, counts our frames as well."""

    def __init__(self) -> None:
        # The keys are the ids of code and of its globals, since hashing would read all of the code; both stay alive
        # here.
        self._made: dict[tuple[int, int, int], tuple[CodeType, Calling]] = {}

    def of(self, frame: FrameType) -> Calling:
        """What makes a call as from here: of(frame)(function, args, kwargs)."""
        key = id(frame.f_code), frame.f_lasti, id(frame.f_globals)
        made = self._made.get(key)
        if made is None:
            code = frame.f_code
            calling = _calling(code.co_filename, code.co_name, frame.f_lineno, frame.f_globals)
            made = self._made[key] = code, calling
        return made[1]

    def clear(self) -> None:
        """Let go of the program's code."""
        self._made.clear()


def below_the_program(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), which runs a program, below a frame that looks to `warnings` as no frame at all: without us
    no frame is below a program."""
    file, line = ("sys", 1) if sys.version_info < (3, 13) else ("<sys>", 0)
    return _calling(file, "<module>", line, vars(sys))(function, args, {})


def _calling(file: str, name: str, line: int, own: dict[str, Any]) -> Calling:
    code = _call.__code__.replace(co_filename=file, co_name=name, co_firstlineno=line)
    _PROXY_CODE.add(code)
    return FunctionType(code, own)


def remove_our_frames(error: BaseException) -> None:
    """Take our frames out of an error's traceback, before a bare `raise` hands it to the program, which may catch and
    print it. Python 3.10 keeps the frame that raises."""
    error.__traceback__ = _cleaned(error.__traceback__)


def without_our_frames(error: BaseException) -> BaseException:
    """The error, its causes and contexts, and the errors of a group, with tracebacks that show no frame of
    pytest-probe."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        remove_our_frames(each)
        others = each.__cause__, each.__context__, *getattr(each, "exceptions", ())
        waiting += [other for other in others if isinstance(other, BaseException)]
    return error


def _cleaned(traceback: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code not in _PROXY_CODE and not code.co_filename.startswith(_PACKAGE):
            # A function that asked, and ran once more by our call, is there once.
            codes = [each.tb_frame.f_code for each in entries[-2:]]
            if len(codes) == 2 and codes[0] is code and codes[1] in ASKING_CODE:
                del entries[-2:]
            entries.append(traceback)
        traceback = traceback.tb_next
    cleaned: TracebackType | None = None
    for entry in reversed(entries):
        cleaned = TracebackType(cleaned, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cleaned


class CallStacks:
    """Numbers for stacks: the same one for the same callers.

    again says of a code object whether its calls may be computed again, as activation checkpointing does; going says
    whether such a computation runs now, inside a backward.
    """

    def __init__(self, again: Callable[[CodeType], bool], going: Callable[[], bool]) -> None:
        self._again = again
        self._going = going
        # Keys have the addresses of code objects, which `_frames` keeps alive: hashing one would read all of it.
        self._key: Callable[[FrameType], Hashable] = _key if kernel.compiled is None else kernel.compiled.stack
        self.numbers: dict[Hashable, int] = {}
        # Threads may meet new stacks at once, and a signal may end the making of one at any place.
        self._next = itertools.count()
        self._frames: dict[int, list[tuple[CodeType, int]]] = {}
        # What is known of code, by its address: is it the program's, and may its calls be computed again?
        self._codes: dict[int, tuple[CodeType, bool, bool]] = {}
        # The stacks that contain activation checkpointing.
        self.checkpoints: set[int] = set()
        self._lines: dict[int, list[str]] = {}

    def number(self, first: FrameType) -> int:
        """The number of the stack whose innermost frame this is."""
        known = self._key(first)
        number = self.numbers.get(known)
        if number is None:
            number = self.numbers[known] = self._new(first)
        return number

    def _new(self, first: FrameType) -> int:
        frames, again = [], False
        frame: FrameType | None = first
        while frame is not None:
            code, shown, computes_again = self._codes.get(id(frame.f_code)) or self._known(frame.f_code)
            if shown:
                frames.append((code, frame.f_lineno))
                again |= computes_again
            frame = frame.f_back
        number = next(self._next)
        self._frames[number] = frames
        if again:
            self.checkpoints.add(number)
        return number

    def _known(self, code: CodeType) -> tuple[CodeType, bool, bool]:
        shown = not code.co_filename.startswith(_HERE) and code not in _PROXY_CODE
        found = self._codes[id(code)] = code, shown, self._again(code)
        return found

    def recomputes(self, number: int) -> bool:
        """Does a checkpoint compute here again, inside a backward, what it did not keep? False for an unknown stack
        (-1)."""
        return number in self.checkpoints and self._going()

    def lines(self) -> dict[int, list[str]]:
        """All stacks as stack.json shows them, innermost frame first."""
        for number in self._frames.keys() - self._lines.keys():
            self._lines[number] = [_line(*frame) for frame in self._frames[number]]
        return self._lines


def _key(first: FrameType) -> tuple[int, ...]:
    """The same key as the kernel's, from Python's ids."""
    key: list[int] = []
    frame: FrameType | None = first
    while frame is not None:
        key.append(id(frame.f_code))
        key.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(key)


@functools.lru_cache(65536)
def _line(code: CodeType, line: int) -> str:
    source = linecache.getline(code.co_filename, line).strip()
    return f"File {code.co_filename}, line {line}, in {code.co_name}, \n {source}"
