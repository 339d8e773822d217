"""PaddlePaddle: its operators below the public functions, so that a dump may call them.

Most operators read as many arguments as they have parameters, also from memory behind the arguments that were given. So
a replay gives them more arguments, all None, than any has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType
from typing import Any

import paddle

# More than any operator takes.
_NOTHING = (None,) * 64
_COUNTED = "Has too many arguments"
# The place of a dtype, which nothing else may stand in: the process would end.
_DTYPES: Mapping[str, int] = {
    **dict.fromkeys("cast empty empty_like ones ones_like randperm uniform zeros zeros_like".split(), 1),
    **dict.fromkeys("cummax cummin eye full full_like".split(), 2),
    **dict.fromkeys("arange full_ linspace randint".split(), 3),
    "logspace": 4,
}


def operator(name: str) -> Callable[..., Any]:
    """paddle._C_ops.<name> as it is now, for any arguments. It raises TypeError for what is no dtype."""
    place = _DTYPES.get(name, _DTYPES.get(name.rstrip("_"), len(_NOTHING)))
    function = _with_operator(getattr(paddle._C_ops, name), lambda found: _padded(found, place))
    return functools.partial(_recurrent, function) if name == "rnn" else function


def _with_operator(function: Any, change: Callable[[Any], Any]) -> Any:
    """The function with its operator changed. What a user has put there stays; while steps are rounded a function
    stands there that is given the operator."""
    if isinstance(function, BuiltinFunctionType):
        return change(function)
    if isinstance(function, functools.partial) and isinstance(function.args[-1], BuiltinFunctionType):
        *given, found = function.args
        return functools.partial(function.func, *given, change(found))
    return function


def _padded(function: Callable[..., Any], dtype: int) -> Callable[..., Any]:
    """Most operators read as many arguments as they have parameters, and where fewer were given memory that is not
    theirs. Here they find None; what is too much they don't read, unless they count their arguments. dtype is the place
    of one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if dtype < len(args) and not isinstance(args[dtype], (paddle.dtype, type(None))):
            raise TypeError(f"{type(args[dtype]).__name__} in the place of a dtype")
        try:
            return function(*args, *_NOTHING, **kwargs)
        except ValueError as error:
            if _COUNTED not in str(error):
                raise
        return function(*args, **kwargs)

    return call


def _recurrent(function: Callable[..., Any], x: Any, states: Any, weights: Any, *others: Any, **kwargs: Any) -> Any:
    """rnn(x, states, weights, ...): it computes no gradient but beside those of all weights."""
    tensors = _tensors(weights)
    wanting = [
        one for one in (x, *_tensors(states), *tensors) if isinstance(one, paddle.Tensor) and not one.stop_gradient
    ]
    frozen = [one for one in tensors if one.stop_gradient]
    if wanting and frozen:
        beside = iter(_Beside.apply(wanting[0], *frozen))
        weights = [next(beside) if one.stop_gradient else one for one in tensors]
    return function(x, states, weights, *others, **kwargs)


class _Beside(paddle.autograd.PyLayer):  # type: ignore[misc]
    """Tensors whose gradients are computed where that of another is asked for, to which they add nothing."""

    @staticmethod
    def forward(context: Any, wanting: Any, *tensors: Any) -> tuple[Any, ...]:
        context.save_for_backward(wanting)
        return tuple(one.clone() for one in tensors)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
        (wanting,) = context.saved_tensor()
        return (paddle.zeros_like(wanting), *(None for _ in gradients))


def _tensors(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        return ()
    return [one for one in value if isinstance(one, paddle.Tensor)]
