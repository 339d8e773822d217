"""Functions replaced wherever a loaded module holds them, and put back.

Paddle has no mode that sees calls, and a function is bound in thousands of places: `paddle.add` is `paddle.Tensor.add`,
and `from` imports hold both.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from paddle.jit.dy2static import program_translator

_Function: TypeAlias = Callable[..., Any]

# Their modules keep Paddle's own functions, with which calls are replayed.
_OURS = "pytest_probe"


class Bindings:
    """Replaces functions: in classes, and in all modules that hold them under any name.

    Modules that are loaded later are looked through at the next `put`, and at `take_back` for replacements that they
    took.
    """

    def __init__(self, pairs: Iterable[tuple[_Function, _Function]], classes: Iterable[type]) -> None:
        # Both stay alive, so that their ids stay their own.
        self._pairs = list(pairs)
        self._replacements = {id(original): replacement for original, replacement in self._pairs}
        self._originals = {id(replacement): original for original, replacement in self._pairs}
        self._methods = [
            (owner, name, value, self._replacements[id(value)])
            for owner in classes
            for name, value in list(vars(owner).items())
            if id(value) in self._replacements
        ]
        self._names: list[tuple[dict[str, Any], str, _Function, _Function]] = []
        self._known: set[str] = set()
        self.there = False

    def put(self) -> None:
        for names in self._unknown():
            for name, value in list(names.items()):
                replacement = self._replacements.get(id(value))
                if replacement is not None:
                    self._names.append((names, name, value, replacement))
        for owner, name, original, replacement in self._methods:
            if vars(owner).get(name) is original:
                setattr(owner, name, replacement)
        for names, name, original, replacement in self._names:
            if names.get(name) is original:
                names[name] = replacement
        self.there = True

    def take_back(self) -> None:
        """What somebody else has replaced since stays."""
        for owner, name, original, replacement in self._methods:
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
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


class CompiledRegions:
    """Runs `away` around every call of a function that paddle.jit.to_static compiled, while it is put: what such a
    function calls is not the program's."""

    def __init__(self, away: Callable[[], AbstractContextManager[None]]) -> None:
        kinds = (getattr(program_translator, name, None) for name in ("ASTStaticFunction", "SymbolicStaticFunction"))
        self._calls = [(kind, kind.__call__, _around(kind.__call__, away)) for kind in kinds if kind is not None]

    def put(self) -> None:
        for kind, _, replacement in self._calls:
            kind.__call__ = replacement

    def take_back(self) -> None:
        for kind, original, _ in self._calls:
            kind.__call__ = original


def _around(original: Callable[..., Any], away: Callable[[], AbstractContextManager[None]]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        with away():
            return original(*args, **kwargs)

    return replacement
