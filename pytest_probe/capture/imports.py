"""Follows the imports of a program: calls back when a framework is there.

Every Python that a captured program starts imports this module, so it imports little: importlib.abc takes 50 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Watch:
    """A finder of sys.meta_path, which finds the modules of these names as the others do, and follows how they are
    executed."""

    def __init__(self, names: Collection[str], imported: Callable[[str], None]) -> None:
        self._names = names
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            executed = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                executed(module)
                self._imported(name)

            loader.exec_module = exec_module
        return spec


@contextmanager
def watch_imports(names: Collection[str], imported: Callable[[str], None]) -> Iterator[None]:
    """Call imported with each of these names once its module is imported, also with names that were imported before."""
    watch = _Watch(names, imported)
    sys.meta_path.insert(0, watch)
    try:
        for name in names:
            if name in sys.modules:
                imported(name)
        yield
    finally:
        sys.meta_path.remove(watch)
