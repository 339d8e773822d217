"""Functions that torch's function mode cannot see, as those of an extension: wrapped while recording."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import torch

from pytest_probe.errors import SettingsError
from pytest_probe.frameworks.torch.recording.modes import Presence

# Makes the call, and records it under a name: name, function, args, kwargs.
CallHandler: TypeAlias = Callable[[str, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]

# What the records of other functions begin with.
_TAKEN = frozenset("Functional Tensor Torch VF Aten NPU Module Cell Distributed NPU_Distributed".split())


class Wrapped:
    """A function of a module, whose calls are recorded under a name. It is equal to that function and pickled as it:
    programs compare functions, and keep them."""

    def __init__(self, owner: ModuleType, attribute: str, name: str, call: CallHandler) -> None:
        self.function: Callable[..., Any] = getattr(owner, attribute)
        functools.update_wrapper(self, self.function)
        self._place = (owner.__name__, attribute)
        self._name = name
        self._call = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.function(*args, **kwargs)
        return self._call(self._name, self.function, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, Wrapped) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __reduce__(self) -> tuple[Any, ...]:
        return _at, self._place


def _at(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


def outermost(presence: Presence, call: CallHandler) -> CallHandler:
    """As call, but only where the mode is on; it is off inside, so that what the function calls is not recorded."""

    def made(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with presence.away() as was_on:
            return call(name, function, args, kwargs) if was_on else function(*args, **kwargs)

    return made


@contextmanager
def wrapped(owner: ModuleType, prefix: str, names: Sequence[str], call: CallHandler) -> Iterator[None]:
    """The owner's functions of these names as Wrapped; afterwards they are what they were, unless somebody else has
    replaced them since."""
    put = {name: Wrapped(owner, name, f"{prefix}.{name}", call) for name in names}
    for name, one in put.items():
        setattr(owner, name, one)
    try:
        yield
    finally:
        for name, one in put.items():
            if getattr(owner, name, None) is one:
                setattr(owner, name, one.function)


def modules(namespaces: Sequence[tuple[str, str]]) -> tuple[tuple[str, ModuleType], ...]:
    """The modules of a configuration, each after its prefix. Raises SettingsError where one cannot be used."""
    return tuple((_prefix(prefix), _module(prefix, path)) for prefix, path in namespaces)


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


def _prefix(prefix: str) -> str:
    if not prefix.isidentifier() or prefix in _TAKEN:
        wanted = f"give a prefix of one word, but not one of {', '.join(sorted(_TAKEN))}"
        raise SettingsError("namespaces", prefix, wanted)
    return prefix


def _module(prefix: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except Exception as error:  # a module's own code may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(f"namespaces: {prefix}", path, f"give a module that can be imported ({reason})") from error
