"""A call below a frame with a name: whatever prints the stacks of a process that dies then says what it ran."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

Found = TypeVar("Found")


def _call(function: Callable[[], Any]) -> Any:
    return function()


def called_below(name: str, function: Callable[[], Found]) -> Found:
    """function(), below a frame of this name. faulthandler, which pytest switches on, writes the names of all frames
    where native code ends the process, and no Python code runs then that could say more."""
    names = {"co_name": name, "co_filename": "<pytest-probe item>"}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    found: Found = FunctionType(_call.__code__.replace(**names), {})(function)  # type: ignore[arg-type]
    return found
