"""Wrappers that frameworks put around their own functions while they import a part of themselves: results stay."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType

# By module the function that makes such wrappers, and what they call the function inside: torch keeps its compiler out
# of some of its own when that is imported.
_MAKERS = {"torch._compile": ("_disable_dynamo", "fn")}


def without_wrapper(function: FunctionType) -> FunctionType:
    """The function that such a wrapper calls; any other function itself."""
    maker, inside = _MAKERS.get(str(function.__globals__.get("__name__")), ("", ""))
    made_by = getattr(sys.modules.get(str(function.__globals__.get("__name__"))), maker, None) if maker else None
    if inside not in function.__code__.co_freevars or function.__code__ not in _codes(made_by):
        return function
    found = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))[inside].cell_contents
    return found if isinstance(found, FunctionType) else function


def _codes(function: object) -> tuple[CodeType, ...]:
    """The code of the functions that it makes."""
    code = getattr(function, "__code__", None)
    return () if code is None else tuple(each for each in code.co_consts if isinstance(each, CodeType))
