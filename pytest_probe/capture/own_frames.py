"""Tracebacks of a recorded program: its own frames, and none of ours."""

from __future__ import annotations

import os
from types import CodeType, TracebackType

from pytest_probe.capture.call_sites import STANDING_IN

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

# Functions with which a framework asks who wants a call. The function that asks then runs once more inside.
ASKING: set[CodeType] = set()


def leave_out(error: BaseException) -> None:
    """Take our frames out of an error's traceback, before a bare `raise` hands it to the program, which may catch and
    print it. Python 3.10 keeps the frame that raises."""
    error.__traceback__ = _cleaned(error.__traceback__)


def without_our_frames(error: BaseException) -> BaseException:
    """The error, those that led to it, and those of a group, with tracebacks that show no frame of pytest-probe."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        leave_out(each)
        others = each.__cause__, each.__context__, *getattr(each, "exceptions", ())
        waiting += [other for other in others if isinstance(other, BaseException)]
    return error


def _cleaned(traceback: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while traceback is not None:
        if not _ours(traceback.tb_frame.f_code):
            _add(entries, traceback)
        traceback = traceback.tb_next
    cleaned: TracebackType | None = None
    for entry in reversed(entries):
        cleaned = TracebackType(cleaned, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cleaned


def _ours(code: CodeType) -> bool:
    return code in STANDING_IN or code.co_filename.startswith(_PACKAGE)


def _add(entries: list[TracebackType], entry: TracebackType) -> None:
    """One entry more. A function that asked, and ran once more by our call, is there once."""
    codes = [each.tb_frame.f_code for each in entries[-2:]]
    if len(codes) == 2 and codes[0] is entry.tb_frame.f_code and codes[1] in ASKING:
        del entries[-2:]
    entries.append(entry)
