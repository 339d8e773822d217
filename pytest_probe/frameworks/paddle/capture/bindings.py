"""Regions that Paddle compiles."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from paddle.jit.dy2static import program_translator


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
