"""Functions that torch's function mode cannot see, as those of an extension: wrapped while recording."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import torch

from pytest_probe.capture.frames import remove_our_frames
from pytest_probe.frameworks.torch.capture.modes import Presence

# Makes the call, and records it under a name: name, function, args, kwargs.
CallHandler: TypeAlias = Callable[[str, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]


# What the records of other functions begin with.
TAKEN = frozenset("Functional Tensor Torch VF Aten NPU Module Cell Distributed NPU_Distributed".split())


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
        try:
            return self._call(self._name, self.function, args, kwargs)
        except BaseException as error:
            remove_our_frames(error)
            raise

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
