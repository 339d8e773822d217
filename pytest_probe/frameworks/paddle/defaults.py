"""PaddlePaddle: arguments that float64 would make another call of: a default that is a number of the tensors' dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from pytest_probe.frameworks.paddle.arrays import is_float
from pytest_probe.numerics.dtypes import float_format

# Dtypes that a recorded tensor may have where float64 takes its place.
NATIVE = ("float32", "float16", "bfloat16")
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


def bits(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """view(x, shape_or_dtype): a dtype reads the bits that the tensor has on the device."""
    (x, wanted), args, kwargs = _first(("x", "shape_or_dtype"), args, kwargs)
    if isinstance(wanted, (str, paddle.dtype)) and is_float(x):
        x = x.cast(next(dtype for dtype in NATIVE if float_format(dtype).max == largest))
    return (x, wanted, *args), kwargs


def variances(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """box_coder(prior_box, prior_box_var, ...): the float64 kernel reads numbers as if they were float64."""
    (boxes, numbers), args, kwargs = _first(("prior_box", "prior_box_var"), args, kwargs)
    if isinstance(numbers, (list, tuple)):
        numbers = paddle.to_tensor([list(numbers)] * boxes.shape[0], boxes.dtype)
    return (boxes, numbers, *args), kwargs


def _first(
    names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], tuple[Any, ...], dict[str, Any]]:
    """The first arguments, given by place or by name, and the others."""
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    others = {name: value for name, value in kwargs.items() if name not in names}
    return [given[name] for name in names], args[len(names) :], others


# By canonical name.
DEFAULTS: Mapping[str, Callable[[float, tuple[Any, ...], dict[str, Any]], CallArguments]] = {
    "matrix_rank": relative_tolerance,
    "lstsq": cut_off,
    "nan_to_num": clamp_limits,
    "view": bits,
    "box_coder": variances,
}


def as_single(function: Callable[..., Any], largest: float, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """The function's result under these defaults, as they are for float32 and for tensors whose largest number this
    is."""
    args, kwargs = DEFAULTS[name](largest, args, kwargs)
    return function(*args, **kwargs)
