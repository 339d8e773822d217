"""Dropout that keeps all elements, for programs that are compared: torch's functions, with training=False."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F

_NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class _Keeping:
    """A dropout that gives what it gets. It is equal to torch's, by which a capture knows its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return self.function(input, p, training=False, inplace=inplace)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _Keeping) else other)

    def __hash__(self) -> int:
        return hash(self.function)


def keep_all(wanted: bool) -> None:
    """From now on these functions, and the modules that call them, give what they get; not wanted: as torch has it."""
    for name in _NAMES:
        found = getattr(F, name)
        original = found.function if isinstance(found, _Keeping) else found
        setattr(F, name, _Keeping(original) if wanted else original)
