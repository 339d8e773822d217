"""PaddlePaddle: what changes in a run of a user's reference.

Casts and factories of floating dtypes that are narrower than the run's give that of the run. A border between two
kernels rounds values and their gradient, in runs that are asked to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from pytest_probe.frameworks.paddle.arrays import to_array, to_tensor
from pytest_probe.frameworks.paddle.rounding import replaced
from pytest_probe.frameworks.widened import border_dtype
from pytest_probe.numerics.dtypes import numpy_dtype, round_to, widen

# By the dtype of the run.
WIDE = {
    "float64": {
        paddle.float16: paddle.float64,
        paddle.bfloat16: paddle.float64,
        paddle.float32: paddle.float64,
        paddle.complex64: paddle.complex128,
    },
    "float32": {paddle.float16: paddle.float32, paddle.bfloat16: paddle.float32},
}


@contextmanager
def widening(dtype: str, casts: list[str]) -> Iterator[None]:
    """In here an operator that is asked for a narrower floating dtype gives dtype; casts gets its name."""

    def wide(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_called, WIDE[dtype], casts, name, operator)

    with replaced(wide):
        yield


def _called(
    wider: Mapping[Any, Any], casts: list[str], name: str, operator: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    def wide(value: Any) -> Any:
        if not isinstance(value, paddle.dtype) or value not in wider:
            return value
        casts.append(name)
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
