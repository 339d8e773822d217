"""PaddlePaddle: casts and factories of floating dtypes that are narrower than a run's give that of the run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import paddle

from pytest_probe.frameworks.paddle.rounding import replaced

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
