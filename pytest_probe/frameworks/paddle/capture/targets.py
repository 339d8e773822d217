"""Functions that a user names by their paths."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Sequence
from types import ModuleType
from typing import Any

log = logging.getLogger("pytest_probe")


def found(paths: Sequence[str]) -> list[tuple[str, Any]]:
    """The functions at these paths, each after its path. Those that are missing, and what is no function, are named in
    one warning."""
    functions, others = [], []
    for path in dict.fromkeys(paths):
        function = _at(path)
        if callable(function) and not isinstance(function, (type, ModuleType)):
            functions.append((path, function))
        else:
            kind = "missing" if function is None else "a module" if isinstance(function, ModuleType) else "no function"
            others.append(f"{path} ({kind})")
    if others:
        log.warning("pytest-probe: these are not recorded: %s", ", ".join(others))
    return functions


def _at(path: str) -> Any:
    """What stands at a path, None where nothing does: inside the longest part of it that is a module."""
    names = path.split(".")
    for count in range(len(names), 0, -1):
        module = _module(".".join(names[:count]))
        if module is not None:
            return functools.reduce(lambda owner, name: getattr(owner, name, None), names[count:], module)
    return None


def _module(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except Exception:  # a module's own code may raise anything
        return None
