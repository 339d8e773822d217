"""Whose a function is: only that of the framework's own is known by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

COMPILED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


def belongs_to(function: Callable[..., Any], package: str) -> bool:
    """Is it the package's own function, and none that somebody put in its place?"""
    if isinstance(function, COMPILED):
        owner = getattr(function, "__objclass__", None) or function
        module = getattr(owner, "__module__", None) or getattr(getattr(function, "__self__", None), "__name__", "")
        return str(module).split(".", 1)[0] == package
    if not isinstance(function, FunctionType) or package not in sys.modules:
        return False
    folders = map(Path, sys.modules[package].__path__)
    own = any(Path(function.__code__.co_filename).is_relative_to(folder) for folder in folders)
    # A decorator of the framework's may stand around a function of the user's.
    inner = getattr(function, "__wrapped__", None)
    return own and (inner is None or belongs_to(inner, package))
