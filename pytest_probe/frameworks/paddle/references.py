"""PaddlePaddle: how a function becomes its own reference, and what changes while a reference runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from pytest_probe.frameworks.base import Cast, border_dtype
from pytest_probe.frameworks.paddle.arrays import is_float, name_of, to_array, to_tensor
from pytest_probe.frameworks.paddle.rounding import replaced
from pytest_probe.frameworks.python.binding import clamp_limits
from pytest_probe.model.comparison import Choice
from pytest_probe.numerics.dtypes import float_format, numpy_dtype, round_to, widen
from pytest_probe.user_errors import users_place

# Dtypes that a recorded tensor may have where float64 takes its place.
_NATIVE = ("float32", "float16", "bfloat16")
# u_c of float32: what kernels of float32 and of all narrower dtypes compute in.
EPS = float(np.finfo(np.float32).eps)
_CallArguments = tuple[tuple[Any, ...], dict[str, Any]]


def _relative_tolerance(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
    """matrix_rank(x, tol, hermitian, atol, rtol)."""
    given = len(args) > 1 and args[1] is not None
    if given or any(kwargs.get(name) is not None for name in ("tol", "atol", "rtol")):
        return args, kwargs
    return args, {**kwargs, "rtol": _cut_off(args, kwargs)}


def cut_off(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
    """lstsq(x, y, rcond)."""
    if kwargs.get("rcond") is not None or (len(args) > 2 and args[2] is not None):
        return args, kwargs
    return (*args[:2], *args[3:]), {**kwargs, "rcond": _cut_off(args, kwargs)}


def _cut_off(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Below which share of the largest singular value one counts as zero."""
    matrix = args[0] if args else kwargs["x"]
    return float(EPS * max(matrix.shape[-2:]))


def bits(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
    """view(x, shape_or_dtype): a dtype reads the bits that the tensor has on the device."""
    (x, wanted), args, kwargs = _first(("x", "shape_or_dtype"), args, kwargs)
    if isinstance(wanted, (str, paddle.dtype)) and is_float(x):
        x = x.cast(next(dtype for dtype in _NATIVE if float_format(dtype).max == largest))
    return (x, wanted, *args), kwargs


def _variances(largest: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _CallArguments:
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
DEFAULTS: Mapping[str, Callable[[float, tuple[Any, ...], dict[str, Any]], _CallArguments]] = {
    "matrix_rank": _relative_tolerance,
    "lstsq": cut_off,
    "nan_to_num": clamp_limits,
    "view": bits,
    "box_coder": _variances,
}


def as_single(function: Callable[..., Any], largest: float, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """The function's result under these defaults, as they are for float32 and for tensors whose largest number this
    is."""
    args, kwargs = DEFAULTS[name](largest, args, kwargs)
    return function(*args, **kwargs)


# What changes in a run of a user's reference.
#
# Casts and factories of floating dtypes that are narrower than the run's give that of the run. A border between two
# kernels rounds values and their gradient, in runs that are asked to.


# By the dtype of the run.
_WIDE = {
    "float64": {
        paddle.float16: paddle.float64,
        paddle.bfloat16: paddle.float64,
        paddle.float32: paddle.float64,
        paddle.complex64: paddle.complex128,
    },
    "float32": {paddle.float16: paddle.float32, paddle.bfloat16: paddle.float32},
}


@contextmanager
def widening(dtype: str, casts: list[Cast]) -> Iterator[None]:
    """In here an operator that is asked for a narrower floating dtype gives dtype; casts gets each."""

    def wide(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_called, _WIDE[dtype], casts, operator)

    with replaced(wide):
        yield


def _called(
    wider: Mapping[Any, Any], casts: list[Cast], operator: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    def wide(value: Any) -> Any:
        if not isinstance(value, paddle.dtype) or value not in wider:
            return value
        casts.append(Cast(name_of(value), users_place()))
        return wider[value]

    return operator(*map(wide, args), **{key: wide(value) for key, value in kwargs.items()})


def border(tensor: Tensor) -> Tensor:
    """See Framework.border."""
    dtype = border_dtype()
    return _Border.apply(tensor, dtype) if dtype and tensor.is_floating_point() else tensor


class _Border(PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(context: Any, tensor: Tensor, dtype: str) -> Tensor:
        context.dtype = dtype
        return _rounded(tensor, dtype)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _rounded(gradient, context.dtype)


def _rounded(tensor: Tensor, dtype: str) -> Tensor:
    # In a reference's run Paddle's casts give float64: NumPy's narrow.
    values = to_array(tensor.detach())
    return to_tensor(np.asarray(widen(round_to(values, numpy_dtype(dtype))).astype(values.dtype)))


# Which elements a function chooses, and what it chooses them from.


# Operators that choose: the place of the argument `axis` and its default, None for the flattened tensor.
_CHOOSING: Mapping[str, tuple[int, int | None]] = {
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
_FLATTEN = 3


def noting(function: Callable[..., Any], noted: list[Choice]) -> Callable[..., Any]:
    """The function, which adds to `noted` each choice that it makes."""

    def seen(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_noted, noted, name, operator) if name in _CHOOSING else operator

    def called(*args: Any, **kwargs: Any) -> Any:
        with replaced(seen):
            return function(*args, **kwargs)

    return called


def _noted(noted: list[Choice], name: str, operator: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    result = operator(*args, **kwargs)
    place, default = _CHOOSING[name]
    axis = args[place] if len(args) > place else kwargs.get("axis", default)
    flat = name in ("argmax", "argmin") and (args[_FLATTEN] if len(args) > _FLATTEN else kwargs.get("flatten", False))
    indices = result[1] if isinstance(result, (tuple, list)) else result
    noted.append(
        Choice(to_array(args[0]).copy(), None if flat or axis is None else int(axis), to_array(indices).copy())
    )
    return result
