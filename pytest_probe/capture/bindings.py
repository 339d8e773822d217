"""Replaces functions and methods, and puts them back.

A function is bound in thousands of places: `paddle.add` is `paddle.Tensor.add`, and `from` imports hold both.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

from pytest_probe.capture.frames import remove_our_frames

Function: TypeAlias = Callable[..., Any]

# Their modules keep the framework's own functions, with which calls are replayed.
_OURS = "pytest_probe"


class Bindings:
    """Replaces functions: in classes, and in all modules that hold them under any name.

    Modules that are loaded later are looked through at the next `put`, and at `take_back` for replacements that they
    took.
    """

    def __init__(self, pairs: Iterable[tuple[Function, Function]], classes: Iterable[type]) -> None:
        # Both stay alive, so that their ids stay their own.
        self._pairs = list(pairs)
        self._replacements = {id(original): replacement for original, replacement in self._pairs}
        self._originals = {id(replacement): original for original, replacement in self._pairs}
        self._methods = [
            (owner, name, value, self._replacements[id(value)], name in vars(owner))
            for owner in classes
            for name in dir(owner)
            if id(value := inspect.getattr_static(owner, name)) in self._replacements
        ]
        self._names: list[tuple[dict[str, Any], str, Function, Function]] = []
        self._known: set[str] = set()
        self.there = False

    def put(self) -> None:
        for names in self._unknown():
            for name, value in list(names.items()):
                replacement = self._replacements.get(id(value))
                if replacement is not None:
                    self._names.append((names, name, value, replacement))
        for owner, name, original, replacement, _ in self._methods:
            if next((names[name] for names in map(vars, owner.__mro__) if name in names), None) is original:
                setattr(owner, name, replacement)
        for names, name, original, replacement in self._names:
            if names.get(name) is original:
                names[name] = replacement
        self.there = True

    def take_back(self) -> None:
        """What somebody else has replaced since stays."""
        for owner, name, original, replacement, own in self._methods:
            if vars(owner).get(name) is replacement:
                put_back(owner, name, original, own)
        for names, name, original, replacement in self._names:
            if names.get(name) is replacement:
                names[name] = original
        for names in self._unknown():
            for name, value in list(names.items()):
                function = self._originals.get(id(value))
                if function is not None:
                    names[name] = function
                    self._names.append((names, name, function, value))
        self.there = False

    def _unknown(self) -> list[dict[str, Any]]:
        """The names of modules that were not looked through before; __main__ gets new ones as a program runs."""
        new = sys.modules.keys() - self._known
        self._known |= new
        modules = [sys.modules[name] for name in (*new, "__main__") if name.partition(".")[0] != _OURS]
        return [names for module in modules if isinstance(names := getattr(module, "__dict__", None), dict)]


def put_back(owner: Any, name: str, original: Any, own: bool) -> None:
    """own: the class had the attribute itself, and did not inherit it."""
    if own:
        setattr(owner, name, original)
    else:
        delattr(owner, name)


def patched(owner: Any, name: str, replacement: Function) -> AbstractContextManager[None]:
    """owner's function of that name becomes replacement(original, ...); afterwards it is what it was, unless somebody
    else has replaced it since. The original is looked up here, before the context begins."""
    original, own = getattr(owner, name), name in vars(owner)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return replacement(original, *args, **kwargs)
        except BaseException as error:
            remove_our_frames(error)
            raise

    @contextmanager
    def there() -> Iterator[None]:
        setattr(owner, name, function)
        try:
            yield
        finally:
            if vars(owner).get(name) is function:
                put_back(owner, name, original, own)

    return there()


def like(function: Function, replacement: Function) -> Function:
    """The replacement with the name, the text and the signature of the function."""
    functools.update_wrapper(replacement, function)
    # Some look at the arguments of a function without looking for what it wraps; those in C++ have none.
    with suppress(TypeError, ValueError):
        replacement.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return replacement


def of_first(step: Callable[[], None]) -> Callable[..., None]:
    """Calls step for the optimizer that it is given first; others belong to its steps."""
    first: list[weakref.ref[Any]] = []

    def stepped(optimizer: Any, *_: Any) -> None:
        if not first or first[0]() is None:
            first[:] = [weakref.ref(optimizer)]
        if first[0]() is optimizer:
            step()

    return stepped


@contextmanager
def steps_end(kinds: Iterable[type], method: str, step: Callable[[], None]) -> Iterator[None]:
    """Call step after each call of this method of the optimizer that is called first. kinds are the classes that have a
    method of their own, or shall get one."""
    stepped = of_first(step)

    def followed(original: Function, optimizer: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        stepped(optimizer)
        return result

    with ExitStack() as patches:
        # All are looked up first: a class may inherit what another one gets.
        for patch in [patched(kind, method, followed) for kind in kinds]:
            patches.enter_context(patch)
        yield
