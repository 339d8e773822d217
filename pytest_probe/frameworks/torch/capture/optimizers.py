"""The end of a training step, seen from outside: an optimizer has stepped."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


@contextmanager
def steps_end(step: Callable[[], None]) -> Iterator[None]:
    """Call step after each step of the optimizer that steps first; others belong to its steps."""
    first: list[weakref.ref[Optimizer]] = []

    def stepped(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not first or first[0]() is None:
            first[:] = [weakref.ref(optimizer)]
        if first[0]() is optimizer:
            step()

    handle = register_optimizer_step_post_hook(stepped)
    try:
        yield
    finally:
        handle.remove()
