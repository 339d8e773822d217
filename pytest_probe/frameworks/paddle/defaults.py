"""PaddlePaddle: arguments whose default is a number of the tensors' dtype, which float64 would make another call of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# u_c of float32: what kernels of float32 and of all narrower dtypes compute in.
EPS = float(np.finfo(np.float32).eps)
CallArguments = tuple[tuple[Any, ...], dict[str, Any]]


def relative_tolerance(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """matrix_rank(x, tol, hermitian, atol, rtol)."""
    given = len(args) > 1 and args[1] is not None
    if given or any(kwargs.get(name) is not None for name in ("tol", "atol", "rtol")):
        return args, kwargs
    return args, {**kwargs, "rtol": _cut_off(args, kwargs)}


def cut_off(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """lstsq(x, y, rcond)."""
    if kwargs.get("rcond") is not None or (len(args) > 2 and args[2] is not None):
        return args, kwargs
    return (*args[:2], *args[3:]), {**kwargs, "rcond": _cut_off(args, kwargs)}


def _cut_off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Below which share of the largest singular value one counts as zero."""
    matrix = args[0] if args else kwargs["x"]
    return float(EPS * max(matrix.shape[-2:]))


def clamp_limits(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """nan_to_num(x, nan, posinf, neginf)."""
    given = {**dict(zip(("nan", "posinf", "neginf"), args[1:], strict=False)), **kwargs}
    ends = {"posinf": largest, "neginf": -largest}
    return args[:1], {**given, **{name: end for name, end in ends.items() if given.get(name) is None}}


# By canonical name.
DEFAULTS: Mapping[str, Callable[[float, tuple[Any, ...], dict[str, Any]], CallArguments]] = {
    "matrix_rank": relative_tolerance,
    "lstsq": cut_off,
    "nan_to_num": clamp_limits,
}


def as_single(function: Callable[..., Any], largest: float, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """The function's result under these defaults, as they are for float32 and for tensors whose largest number this
    is."""
    args, kwargs = DEFAULTS[name](largest, args, kwargs)
    return function(*args, **kwargs)
