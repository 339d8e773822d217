"""Dropout that keeps all elements, for programs that are compared: torch's functions, with training=False."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F

_NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_replaced: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}


def keep_all(wanted: bool) -> None:
    """From now on these functions, and the modules that call them, give what they get; not wanted: as torch has it."""
    for name in _NAMES:
        original, replacement = _replaced.pop(name, (None, None))
        if original is not None and getattr(F, name) is replacement:
            setattr(F, name, original)
        if wanted:
            _replaced[name] = getattr(F, name), _keeping(getattr(F, name))
            setattr(F, name, _replaced[name][1])


def _keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def kept(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return function(input, p, training=False, inplace=inplace)

    return kept
