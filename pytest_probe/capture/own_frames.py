"""Tracebacks of a recorded program: its own frames, and none of ours."""

from __future__ import annotations

import os
from types import TracebackType

from pytest_probe.capture.call_sites import STANDING_IN

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def without_our_frames(error: BaseException) -> BaseException:
    """The error, and those that led to it, with tracebacks that show no frame of pytest-probe."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _cleaned(each.__traceback__)
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
    return error


def _cleaned(traceback: TracebackType | None) -> TracebackType | None:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    cleaned: TracebackType | None = None
    for entry in reversed(entries):
        code = entry.tb_frame.f_code
        if code not in STANDING_IN and not code.co_filename.startswith(_PACKAGE):
            cleaned = TracebackType(cleaned, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cleaned
