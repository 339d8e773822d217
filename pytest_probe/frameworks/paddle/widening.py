"""PaddlePaddle: casts and factories of narrower floating dtypes give float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle

from pytest_probe.frameworks.paddle.rounding import replaced

WIDE = {
    paddle.float16: paddle.float64,
    paddle.bfloat16: paddle.float64,
    paddle.float32: paddle.float64,
    paddle.complex64: paddle.complex128,
}


@contextmanager
def widening(casts: list[str]) -> Iterator[None]:
    """In here an operator that is asked for a narrower floating dtype gives float64; casts gets its name."""

    def wide(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_called, casts, name, operator)

    with replaced(wide):
        yield


def _called(casts: list[str], name: str, operator: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    def wide(value: Any) -> Any:
        if not isinstance(value, paddle.dtype) or value not in WIDE:
            return value
        casts.append(name)
        return WIDE[value]

    return operator(*map(wide, args), **{key: wide(value) for key, value in kwargs.items()})
