"""PaddlePaddle: which elements a function chooses, and what it chooses them from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from pytest_probe.frameworks.paddle.arrays import to_array
from pytest_probe.frameworks.paddle.rounding import replaced
from pytest_probe.model.comparison import Choice

# Operators that choose: the place of the argument `axis` and its default, None for the flattened tensor.
CHOOSING: Mapping[str, tuple[int, int | None]] = {
    "topk": (2, -1),
    "argsort": (1, -1),
    "argmax": (1, None),
    "argmin": (1, None),
    "kthvalue": (2, -1),
    "mode": (1, -1),
    "cummax": (1, -1),
    "cummin": (1, -1),
    "max_with_index": (1, -1),
}
# Of argmax and argmin before Paddle 3.3: the place of the argument `flatten`.
FLATTEN = 3


def noting(function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
    """The function, which adds to `noted` each choice that it makes."""

    def seen(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_noted, noted, name, operator) if name in CHOOSING else operator

    def called(*args: Any, **kwargs: Any) -> Any:
        with replaced(seen):
            return function(*args, **kwargs)

    return called


def _noted(noted: list[Choice], name: str, operator: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    result = operator(*args, **kwargs)
    place, default = CHOOSING[name]
    axis = args[place] if len(args) > place else kwargs.get("axis", default)
    flat = name in ("argmax", "argmin") and (args[FLATTEN] if len(args) > FLATTEN else kwargs.get("flatten", False))
    indices = result[1] if isinstance(result, (tuple, list)) else result
    noted.append(
        Choice(to_array(args[0]).copy(), None if flat or axis is None else int(axis), to_array(indices).copy())
    )
    return result
