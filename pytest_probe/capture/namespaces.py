"""Modules of the user's choice, whose functions are recorded as well."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from pytest_probe.errors import SettingsError


def modules(namespaces: Sequence[tuple[str, str]], taken: frozenset[str]) -> tuple[tuple[str, ModuleType], ...]:
    """The modules of a configuration, each after its prefix; taken are those of the framework's own records. Raises
    SettingsError where one cannot be used."""
    return tuple((_prefix(prefix, taken), _module(prefix, path)) for prefix, path in namespaces)


def functions(module: ModuleType) -> list[str]:
    """The names of a module's public functions; those that it took from other packages are not its own."""
    package = _package(module.__name__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and inspect.isroutine(value) and _package(_home(value) or package) == package
    ]


def _home(function: Any) -> str | None:
    """The module that a function is from; of "apply" of an autograd.Function that of the class."""
    owner = getattr(function, "__self__", None)
    home: str | None = (owner if isinstance(owner, type) else function).__module__
    return home


def _package(module: str) -> str:
    return module.partition(".")[0]


def _prefix(prefix: str, taken: frozenset[str]) -> str:
    if not prefix.isidentifier() or prefix in taken:
        wanted = f"give a prefix of one word, but not one of {', '.join(sorted(taken))}"
        raise SettingsError("namespaces", prefix, wanted)
    return prefix


def _module(prefix: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except Exception as error:  # a module's own code may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(f"namespaces: {prefix}", path, f"give a module that can be imported ({reason})") from error
