"""The end of a training step, seen from outside: an optimizer has stepped."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from paddle.optimizer import Optimizer


@contextmanager
def steps_end(step: Callable[[], None]) -> Iterator[None]:
    """Call step after each step of the optimizer that steps first; others belong to its steps."""
    first: list[weakref.ref[Any]] = []

    def stepped(optimizer: Any) -> None:
        if not first or first[0]() is None:
            first[:] = [weakref.ref(optimizer)]
        if first[0]() is optimizer:
            step()

    originals = [(kind, vars(kind)["step"]) for kind in _kinds(Optimizer) if "step" in vars(kind)]
    replaced = [(kind, original, _followed(original, stepped)) for kind, original in originals]
    for kind, _, replacement in replaced:
        kind.step = replacement
    try:
        yield
    finally:
        for kind, original, replacement in replaced:
            if vars(kind).get("step") is replacement:
                kind.step = original


def _kinds(kind: type) -> Iterator[Any]:
    yield kind
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield from _kinds(each)


def _followed(original: Callable[..., Any], stepped: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replacement(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(optimizer, *args, **kwargs)
        stepped(optimizer)
        return result

    return replacement
